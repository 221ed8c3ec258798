"""The frame of the dashboard in a real Chromium: views by keys, one stream for eight tabs, and a server that goes and comes back."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser import browser
from tests.consumers.dashboard.stage import DashboardStage
from tests.consumers.feedback.stage import episode
from tests.sitting import Sitting, until

__all__ = ["browser"]
pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture
def sitting(browser: Browser) -> Iterator[tuple[DashboardStage, Sitting]]:
    stage = DashboardStage(episode("g", "t", "Which animal?", "a cat", 1.0))
    with stage.served() as url:
        one = Sitting(browser, url)
        yield stage, one
        one.context.close()


def test_eight_tabs_share_one_stream_and_are_all_live(sitting: tuple[DashboardStage, Sitting]) -> None:
    """A browser opens six connections to a host; the eighth tab must hear, and read."""
    stage, one = sitting
    pages = [one.open("/", waits_for="header .stream.live") for _ in range(8)]
    assert len(stage.live._readers) == 1
    for page in pages:
        page.evaluate(
            "import('/page/parts/live.js').then(({onChange}) => onChange((update) => { window.heard = update; }))"
        )
    stage.tell(*episode("g", "t2", "Which animal?", "a dog", 0.0))
    for page in pages:
        until(page, "!!window.heard && window.heard.trajectory.some(([g, t]) => t === 't2')")
    pages[0].close()  # the one that listens: another takes over, without a gap
    expect(pages[7].locator("header .stream.live")).to_be_visible()
    pages[7].evaluate("window.heard = null")
    stage.tell(*episode("g", "t3", "Which animal?", "a fox", 0.0))
    until(pages[7], "!!window.heard && window.heard.trajectory.some(([g, t]) => t === 't3')")
    one.clean(pages[7])


def test_keys_and_unknown_views(sitting: tuple[DashboardStage, Sitting]) -> None:
    """`?` names the keys; an address that is no view says so."""
    _, one = sitting
    page = one.open("/", waits_for="header .stream.live")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("these keys")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
