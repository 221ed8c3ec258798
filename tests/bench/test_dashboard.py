"""`make bench-dashboard` at a small size: it measures the pages and the view of today."""

import pytest
from playwright.sync_api import Browser

from bench import dashboard_page, dashboard_pool
from bench.dashboard import TARGETS
from bench.report import table
from tests.browser import browser
from tests.soak import only_in_soak

__all__ = ["browser"]


def test_the_table_is_complete() -> None:
    """Each target has its line and says whether it is met; one figure is taken here."""
    figures = dict.fromkeys(TARGETS, 1.0) | {"read_ratio": dashboard_pool.read_ratio(1)}
    assert figures["read_ratio"] > 0
    verdicts = table(figures, TARGETS).splitlines()[1:]
    assert len(verdicts) == len(TARGETS)
    assert all(("met" in line) or ("MISSED" in line) for line in verdicts)


@only_in_soak
@pytest.mark.process
def test_the_questions_are_measured() -> None:
    """Each has a figure, and the table says which target it meets."""
    figures = dashboard_pool.measure(400)
    assert min(figures.values()) > 0
    assert {"list_ms", "sort_ms", "filter_ms", "count_ms", "text_ms", "read_ratio", "rss_mb"} <= figures.keys()
    assert len(table({name: figures[name] for name in TARGETS if name in figures}, TARGETS).splitlines()) == 8


@only_in_soak
@pytest.mark.process
def test_a_page_is_measured(browser: Browser) -> None:
    """Rows are on the screen, and scroll."""
    with dashboard_page.served(800) as (url, first_s):
        assert first_s > 0
        assert dashboard_page.first_rows_ms(browser, url) > 0
        assert dashboard_page.frame_ratio(browser, url) > 0
