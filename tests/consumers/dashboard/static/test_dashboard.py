"""The frame of the dashboard in a real Chromium: views by keys, one stream for eight tabs, and a server that goes and comes back."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Route, expect

from claw_r1.eventlog.records import Outgoing
from claw_r1.schemas.api_keys import new_key
from claw_r1.schemas.codec import encode
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import KeyRecorded
from claw_r1.schemas.topics import KEYS
from tests import facts, patience
from tests.browser import ELSEWHERE, browser
from tests.browser_session import BrowserSession, until
from tests.consumers.dashboard.stage import DashboardStage, episode
from tests.consumers.dashboard.test_log_watch import Fickle

__all__ = ["browser"]
pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture
def session(browser: Browser) -> Iterator[tuple[DashboardStage, BrowserSession]]:
    stage = DashboardStage(episode("g", "t", "Which animal?", "a cat", 1.0))
    with stage.served() as url:
        one = BrowserSession(browser, url)
        yield stage, one
        one.close()


LISTENS = """
import("/page/parts/live.js").then((live) => {
  Object.assign(window, { live, heard: [] });
  live.onChange((update) => heard.push(update));
})
"""
HEARD = "heard.some((update) => live.concerns(update, 'trajectory', 'g', '%s'))"


def test_eight_tabs_share_one_stream_and_are_all_live(session: tuple[DashboardStage, BrowserSession]) -> None:
    """A browser opens six connections to a host; the eighth tab must hear, and read."""
    stage, one = session
    pages = [one.open("/", waits_for="header .stream.live") for _ in range(8)]
    assert len(stage.live._readers) == 1
    for page in pages:
        page.evaluate(LISTENS)
    stage.tell(*episode("g", "t2", "Which animal?", "a dog", 0.0))
    for page in pages:
        until(page, HEARD % "t2")
    pages[0].close()  # the one that listens: another takes over, without a gap
    expect(pages[7].locator("header .stream.live")).to_be_visible()
    pages[7].evaluate("heard.length = 0")
    stage.tell(*episode("g", "t3", "Which animal?", "a fox", 0.0))
    until(pages[7], HEARD % "t3")
    one.clean(pages[7])


def test_keys_and_unknown_views(session: tuple[DashboardStage, BrowserSession]) -> None:
    """`?` names the keys; an address that is no view says so."""
    _, one = session
    page = one.open("/", waits_for="header .stream.live")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("these keys")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_first_view_asks_for_its_modules_at_once(session: tuple[DashboardStage, BrowserSession]) -> None:
    """What the document names is what runs, no more and no less; another view's modules come when it is seen."""
    _, one = session
    page = one.open("/explorer", waits_for='[role="row"][aria-selected]')
    named = page.locator("link[rel=modulepreload]").evaluate_all("(links) => links.map((link) => link.href)")
    assert {each for each in one.requests if each.endswith(".js")} == {*named}
    assert [each for each in one.requests if each.endswith(".css")] == [f"{one.url}/style.css"]
    page.keyboard.press("g")
    page.keyboard.press("o")
    expect(page.get_by_role("heading", name="No run has begun")).to_be_visible()
    assert f"{one.url}/page/views/overview.js" in {*one.requests} - {*named}
    one.clean(page)


def test_a_home_asks_at_once_for_all_that_its_address_names(session: tuple[DashboardStage, BrowserSession]) -> None:
    """The curves of a run that is named do not wait for its numbers; the session is asked for once, beside the modules."""
    _, one = session
    page, held = one.tab(), list[Route]()
    page.route("**/api/v1/overview?run=*", lambda route: held.append(route))  # a builtin is no handler
    with page.expect_request("**/runs/curves?*"):
        page.goto(f"{one.url}/overview?run=run")
    session_at = one.requests.index(f"{one.url}/api/v1/session")
    assert session_at < min(at for at, url in enumerate(one.requests) if "/parts/" in url)
    assert one.requests.count(f"{one.url}/api/v1/session") == 1
    patience.until(lambda: held, "its numbers are asked for", step=lambda: page.wait_for_timeout(20))
    held[0].abort()


COUNTS_STREAMS = """
window.streams = 0;
window.EventSource = class extends EventSource {
  constructor(...all) { super(...all); window.streams += 1; }
  close() { if (this.readyState !== EventSource.CLOSED) window.streams -= 1; super.close(); }
};
"""
HIDES = """hidden => {
  Object.defineProperty(document, "hidden", {configurable: true, get: () => hidden});
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_by_the_name_of_another_machine_over_plain_http(browser: Browser) -> None:
    """Such an origin is no secure context, which has neither locks nor a clipboard: every tab is live all the same, and copies."""
    stage = DashboardStage(episode("g", "t", "Which animal?", "a cat", 1.0))
    secret, entry = new_key("operator")
    key = KeyRecorded(envelope=envelope("test"), digest=entry.partition(":")[2], name="ann", role="operator")
    stage.log.append([Outgoing(topic=KEYS, key=key.digest.encode(), value=encode(key))])
    with stage.served(keys=True) as url:
        one = BrowserSession(browser, url.replace("127.0.0.1", ELSEWHERE))
        page = one.open("/trajectory?g=g&t=t", waits_for="input")
        assert not page.evaluate("isSecureContext")
        page.locator("input").fill(secret)
        page.keyboard.press("Enter")
        expect(page.locator("header .stream.live")).to_be_visible()
        other = one.tab()
        other.add_init_script(COUNTS_STREAMS)
        other.goto(page.url)
        expect(other.locator("header .stream.live")).to_be_visible()
        stage.tell(facts.reward("g", "t", 0.5, source="judge", name="style"))
        for each in (page, other):
            expect(each.locator("main")).to_contain_text("judge/style")
        other.evaluate(HIDES, True)  # a browser has six connections to a host, which tabs that nobody sees do not take
        assert other.evaluate("streams") == 0
        stage.tell(facts.reward("g", "t", 0.25, source="judge", name="length"))
        expect(page.locator("main")).to_contain_text("judge/length")
        other.evaluate(HIDES, False)
        expect(other.locator("main")).to_contain_text("judge/length")
        assert other.evaluate("streams") == 1
        page.get_by_role("button", name="copy", exact=True).first.click()
        expect(page.get_by_role("button", name="copied", exact=True)).to_be_visible()
        one.close()


def test_a_log_that_is_away_is_said_on_every_page(browser: Browser) -> None:
    """A banner while the log does not answer, though the dashboard's own server does, and nothing says live; none once it is back."""
    stage = DashboardStage()
    stage.log = log = Fickle(stage.log.settings)
    with stage.served() as url:
        one = BrowserSession(browser, url)
        pages = [one.open(path, waits_for="header .stream.live") for path in ("/explorer", "/curation")]
        for away, banners in ((True, 1), (False, 0)):
            log.away = away
            stage.source.watch.probe()
            for page in pages:
                expect(page.locator(".banner", has_text="the log does not answer")).to_have_count(banners)
                expect(page.locator("header .stream.live")).to_have_count(1 - banners)
        one.close()
