"""`make bench-dashboard` at a small size: it measures the pages and the view of today."""

import pytest
from playwright.sync_api import Browser

from bench import dashboard_page, dashboard_pool
from bench.dashboard import TARGETS, table
from tests.browser import browser

__all__ = ["browser"]
pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_the_questions_are_measured() -> None:
    """Each has a figure, and the table says which target it meets."""
    figures = dashboard_pool.measure(400)
    assert min(figures.values()) > 0
    assert {"list_ms", "sort_ms", "filter_ms", "count_ms", "text_ms", "read_ratio", "rss_mb"} <= figures.keys()
    assert len(table({name: figures[name] for name in TARGETS if name in figures}).splitlines()) == 8


def test_a_page_is_measured(browser: Browser) -> None:
    """Rows are on the screen, and scroll."""
    with dashboard_page.served(800) as (url, first_s):
        assert first_s > 0
        assert dashboard_page.first_rows_ms(browser, url) > 0
        assert dashboard_page.frame_ratio(browser, url) > 0
