"""The trajectory view in a real Chromium: read by keys, and what agents' text cannot do to it."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from claw_r1.schemas.events import RewardAssigned
from tests import facts
from tests.browser import browser
from tests.browser_session import PAYLOADS, BrowserSession, until
from tests.consumers.dashboard.conversations import Speaker, told
from tests.consumers.dashboard.stage import DashboardStage

__all__ = ["browser"]
pytestmark = [pytest.mark.process, pytest.mark.slow]
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
ADDRESS = "/trajectory?g=g&t=t"


@pytest.fixture
def session(browser: Browser) -> Iterator[tuple[DashboardStage, BrowserSession]]:
    stage = DashboardStage()
    with stage.served() as url:
        one = BrowserSession(browser, url)
        yield stage, one
        one.close()


def place(page: Page) -> str:
    """Id of the element that has the focus."""
    return str(page.evaluate("document.activeElement.id"))


def test_a_conversation_is_read_by_keys(session: tuple[DashboardStage, BrowserSession]) -> None:
    """j, k, n, p and the address name the same call; a deep link leads to it; what comes meanwhile is there."""
    stage, one = session
    calls = told(60)
    stage.tell(*calls, facts.reward("g", "t", 0.5, call_id="c00003", source="judge", name="style"))
    page = one.open(ADDRESS, waits_for="#call-0 .message")
    page.keyboard.press("n")
    until(page, "document.activeElement.id === 'm-0-0'")
    page.keyboard.press("j")
    until(page, "document.activeElement.id === 'm-0-1'")
    page.keyboard.press("n")
    until(page, "document.activeElement.id === 'm-1-0'")
    assert "c=c00001" in page.url
    page.keyboard.press("k")
    until(page, "document.activeElement.id === 'm-0-2'")
    page.goto(f"{one.url}{ADDRESS}&c=c00055")
    expect(page.locator("#call-55")).to_be_in_viewport()
    until(page, "document.activeElement.id === 'm-55-0'")
    assert page.locator(".call").count() <= 25
    page.keyboard.press("p")
    until(page, "document.activeElement.id === 'm-54-0'")
    page.locator(".call-side button.plain", has_text="call 4").click()
    expect(page.locator("#call-3")).to_contain_text("judge/style")
    until(page, "document.activeElement.id === 'm-3-0'")
    page.keyboard.press("f")
    page.keyboard.type("STEP 41")
    page.keyboard.press("Enter")
    expect(page.locator("#call-41")).to_be_in_viewport()
    one.clean(page)


def test_what_is_new_appears(session: tuple[DashboardStage, BrowserSession]) -> None:
    """Another call, without a reload."""
    stage, one = session
    first, second = told(2)
    stage.tell(first)
    page = one.open(ADDRESS, waits_for="#call-0 .message")
    stage.tell(second, facts.completed("g", "t", calls=2, reward=1.0))
    expect(page.locator("#call-1")).to_contain_text("result of search")
    expect(page.locator(".head")).to_contain_text("completed, ready")
    one.clean(page)


def test_what_comes_while_a_page_is_read_appears(session: tuple[DashboardStage, BrowserSession]) -> None:
    """An answer that was asked for before the last change of a trajectory is not the last that is asked for."""
    stage, one = session
    stage.tell(*told(1))
    page = one.open(ADDRESS, waits_for="#call-0 .message")
    held: list[Route] = []
    page.route("**/trajectory/messages?*", lambda route: route.continue_() if held else held.append(route))
    stage.tell(facts.reward("g", "t", 0.5, call_id="c00000", source="judge", name="style"))
    while not held:
        page.wait_for_timeout(20)
    before = held[0].fetch()
    later = facts.reward("g", "t", 0.5, call_id="c00000", source="judge", name="tone")
    stage.tell(later, facts.completed("g", "t", calls=1, reward=1.0))
    expect(page.locator(".head")).to_contain_text("completed, ready")
    page.wait_for_timeout(500)  # the page asks again this long after a change, if it does
    held[0].fulfill(response=before)
    expect(page.locator("#call-0")).to_contain_text("judge/tone")
    one.clean(page)


def test_hostile_texts_are_shown_and_do_nothing(session: tuple[DashboardStage, BrowserSession]) -> None:
    """In every field: roles, names, tools, arguments, reasoning, parts, ids, tags, tasks."""
    stage, one = session
    everything = "\n\n".join(PAYLOADS.values())
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    document = {"type": "image_url", "image_url": {"url": "data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9ImFsZXJ0KDEpIi8+"}}
    remote = {"type": "image_url", "image_url": {"url": "http://evil.example/x.png"}}
    speaker = Speaker()
    asks = {"id": PAYLOADS["svg"], "function": {"name": PAYLOADS["script"], "arguments": PAYLOADS["template"]}}
    speaker.call(
        [
            {"role": PAYLOADS["script"], "name": PAYLOADS["bidi"], "content": everything},
            {"role": "user", "content": [{"type": "text", "text": everything}, image, document, remote]},
            {"role": "tool", "tool_call_id": PAYLOADS["link"], "content": "[" * 1_000_000},
            {"role": "assistant", "content": "`*_[" * 100_000, "reasoning": everything},
            {"role": "user", "content": "x" * 6_000_000},
        ],
        {"content": everything, "tool_calls": [asks], "reasoning": everything},
        PAYLOADS["remote"],
        agent=PAYLOADS["script"],
        tags=tuple(PAYLOADS.values()),
    )
    stage.tell(*speaker.calls.values(), facts.started("g", "t", task=everything, metadata=everything))
    page = one.open(ADDRESS, waits_for="#call-0 .message")
    for summary in page.locator("summary").all():
        summary.click()
    page.get_by_role("button", name="step").click()
    page.get_by_role("button", name="show the image").click()
    expect(page.locator(".message img")).to_have_count(1)
    cut = page.locator("button", has_text="show all of it")
    for left in range(cut.count() - 1, -1, -1):
        cut.first.click()
        expect(cut).to_have_count(left)
    expect(page.locator("button", has_text="more characters").first).to_be_visible()
    expect(page.locator("main")).to_contain_text("http://evil.example/x.png")
    until(page, "document.querySelectorAll('*').length < 5000")
    one.clean(page)


def written(stage: DashboardStage) -> list[float | None]:
    """Rewards that people wrote."""
    return [event.value for event in stage.words() if isinstance(event, RewardAssigned)]


def test_a_stray_key_writes_nothing(session: tuple[DashboardStage, BrowserSession]) -> None:
    """Where one only reads, a digit is no reward, nor is it behind the help, whose letters open no view; after `e` it is, and the
    page says what becomes of the return."""
    stage, one = session
    stage.tell(*told(1), facts.completed("g", "t", calls=1, reward=0.25))
    page = one.open(ADDRESS, waits_for=".judge button")
    expect(page.locator(".judge")).to_contain_text("adds to the return, now 0.25")
    page.keyboard.press("5")
    page.keyboard.press("u")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    for key in ("e", "4", "g", "o"):
        page.keyboard.press(key)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert "/trajectory" in page.url
    page.keyboard.press("e")
    expect(page.locator(".judge [role=status].warn")).to_contain_text("1 to 5 judge now")
    page.keyboard.press("4")
    expect(page.locator("p.said")).to_contain_text("overall 4 of 5: return 0.25 → 1")
    assert written(stage) == [0.75]  # the digits before are not among them, and acts are written one after the other
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")  # is the help's, and not of what is behind it
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.locator(".judge [role=status].warn")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".judge [role=status].warn")).to_have_count(0)
    expect(page.locator(".judge [aria-busy=false]")).to_be_visible()  # a key before that judges nothing
    page.keyboard.press("1")
    page.keyboard.press("e")
    page.keyboard.press("2")
    expect(page.locator("p.said")).to_contain_text("overall 2 of 5")
    assert written(stage) == [0.75, 0.25]
    one.clean(page)
