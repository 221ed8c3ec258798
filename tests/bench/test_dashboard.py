"""`make bench-dashboard` at a small size: it measures the pages of today."""

import pytest
from playwright.sync_api import Browser

from bench.dashboard import page
from bench.dashboard.__main__ import BENCH
from bench.report import table
from tests.browser import browser
from tests.soak import only_in_soak

__all__ = ["browser"]


def test_the_table_is_complete() -> None:
    """Each target has its line and says whether it is met."""
    verdicts = table(dict.fromkeys(BENCH.targets, 1.0), BENCH.targets).splitlines()[1:]
    assert len(verdicts) == len(BENCH.targets)
    assert all(("met" in line) or ("MISSED" in line) for line in verdicts)


@only_in_soak
@pytest.mark.process
def test_a_page_is_measured(browser: Browser) -> None:
    """Rows are on the screen, and scroll."""
    with page.served(800) as (url, first_s):
        assert first_s > 0
        assert page.first_ms(browser, url, *page.FIRST["first_rows_ms"]) > 0
        assert page.frame_ratio(browser, url) > 0
