"""The token view in a real Chromium: exact text, keys, ranges, hostile texts, and ten thousand tokens."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from claw_r1.schemas.arrays import pack_floats
from claw_r1.schemas.events import VersionSpan
from tests import facts
from tests.browser import browser
from tests.browser_session import PAYLOADS, BrowserSession, until
from tests.consumers.dashboard.stage import DashboardStage
from tests.consumers.dashboard.token_scenes import TIMED, planned, run_started, sampled, write_tokenizer

__all__ = ["browser"]
pytestmark = [pytest.mark.process, pytest.mark.slow]
FAMILY = "👨‍👩‍👧"
LINES = ".token-line .token"
DETAIL = "aside.token-detail"


@pytest.fixture
def scene(browser: Browser, tmp_path: Path) -> Iterator[tuple[DashboardStage, BrowserSession]]:
    model = tmp_path / "model"
    tokenizer = write_tokenizer(model)
    question = "Translate: " + "a long context. " * 20
    first = sampled(tokenizer, "c1", question, "日本語 שלום")
    cut = f"{FAMILY} ok\nnew ".encode() + "€".encode()[:2]
    second = sampled(tokenizer, "c2", "".join(PAYLOADS.values()), cut, base=first, received_us=9)
    stage = DashboardStage(
        [
            first,
            second,
            facts.reward("g", "t", 0.5, call_id="c2", source="judge", name=PAYLOADS["script"]),
            facts.curated("g", "t", "c2", quality=0.25, tags=(PAYLOADS["svg"],)),
            facts.completed("g", "t", calls=2, reward=1.0),
        ]
    )
    stage.report(run_started(model), planned(["c2"], masked=["c1"], oldest=4))
    with stage.served() as url:
        one = BrowserSession(browser, url, viewport={"width": 1280, "height": 860})
        yield stage, one
        one.close()


def picture(page: Page, name: str) -> None:
    """Kept where `CLAW_SCREENSHOTS` says."""
    if folder := os.environ.get("CLAW_SCREENSHOTS"):
        page.screenshot(path=f"{folder}/tokens-{name}.png")


def test_a_person_reads_a_reply_token_by_token(scene: tuple[DashboardStage, BrowserSession]) -> None:
    """Text, bytes, the character they make, versions and training of a token are a key away, and in the address."""
    _, one = scene
    page = one.open("/tokens?g=g&t=t&c=c2", waits_for=LINES)
    detail = page.locator(DETAIL)
    expect(detail).to_contain_text(FAMILY)
    expect(detail).to_contain_text("F0")
    expect(detail).to_contain_text("version older than 4")
    expect(detail).to_contain_text("judge/")
    expect(detail).to_contain_text("run/3")
    expect(page.locator(".token.here")).to_have_text("v3⟨F0⟩")
    page.keyboard.press("v")
    expect(detail).to_contain_text("run/4, begins here")
    expect(detail).to_contain_text("trained")
    expect(detail).to_contain_text("0.5")
    page.keyboard.press("v")
    expect(detail).to_contain_text("No version-changing token after this one")
    picture(page, "light")
    for _ in range(60):
        page.keyboard.press("ArrowRight")
    expect(detail).to_contain_text("make no whole character here")
    last = page.locator(".token.here").get_attribute("data-at")
    until(page, f"new URLSearchParams(location.search).get('at') === '{last}'")
    page.reload()
    page.wait_for_selector(".token.here")
    assert page.locator(".token.here").get_attribute("data-at") == last
    page.keyboard.press("Shift+V")
    expect(detail).to_contain_text("begins here")
    page.keyboard.press("i")
    expect(page.locator(".token small").first).to_be_visible()
    picture(page, "ids")
    page.keyboard.press("[")
    until(page, "new URLSearchParams(location.search).get('c') === 'c1'")
    expect(page.locator("h1")).to_contain_text("c1")
    one.clean(page)


def test_context_is_folded_and_unfolds(scene: tuple[DashboardStage, BrowserSession]) -> None:
    """A long prompt is one line until somebody opens it; what stands in it runs nothing."""
    _, one = scene
    page = one.open("/tokens?g=g&t=t&c=c2", waits_for=LINES)
    folds = page.locator("button.fold")
    count = folds.count()
    assert count == 2
    folds.first.click()
    expect(folds).to_have_count(count - 1)
    assert "open=0" in page.url
    page.keyboard.press("x")
    expect(folds).to_have_count(2)
    page.keyboard.press("x")
    expect(folds).to_have_count(0)
    expect(page.locator(LINES).first).to_be_visible()
    picture(page, "unfolded")
    one.clean(page)


def test_the_raw_record_stands_beside(scene: tuple[DashboardStage, BrowserSession]) -> None:
    """`r` shows what the log holds; a record that is no call has an address of its own."""
    _, one = scene
    page = one.open("/tokens?g=g&t=t&c=c2", waits_for=LINES)
    page.keyboard.press("r")
    record = page.locator("section.record")
    expect(record).to_contain_text("CallCaptured")
    expect(record).to_contain_text("claw.calls[")
    expect(record.locator(".command")).to_contain_text("claw broker tool console-consumer --topic claw.calls")
    expect(record.locator(".mono")).to_contain_text('"call_id": "c2"')
    picture(page, "record")
    page.goto(one.url + "/tokens?topic=claw.calls&partition=0&offset=999")
    expect(page.get_by_role("alert")).to_contain_text("claw.calls")
    page.goto(one.url + "/tokens")
    expect(page.locator("main")).to_contain_text("names no trajectory")


def test_without_a_tokenizer_the_messages_are_there(
    scene: tuple[DashboardStage, BrowserSession], tmp_path: Path
) -> None:
    stage, one = scene
    stage.report(run_started(tmp_path / "none"))
    page = one.open("/tokens?g=g&t=t&c=c2", waits_for=LINES)
    expect(page.locator("main")).to_contain_text("No text: there is no ")
    expect(page.locator(".messages")).to_contain_text("<script>")
    picture(page, "ids-only")
    one.clean(page)


def test_dark_and_narrow(browser: Browser, scene: tuple[DashboardStage, BrowserSession]) -> None:
    _, one = scene
    dark = BrowserSession(browser, one.url, viewport={"width": 1280, "height": 860}, color_scheme="dark")
    page = dark.open("/tokens?g=g&t=t&c=c2&show=ids&record=1", waits_for=LINES)
    picture(page, "dark")
    page.set_viewport_size({"width": 360, "height": 740})
    until(page, "document.documentElement.scrollWidth <= 360")
    picture(page, "narrow")
    dark.clean(page)
    dark.close()


def test_of_ten_thousand_tokens_a_page_holds_some_hundred_lines(browser: Browser, tmp_path: Path) -> None:
    """They are painted with heat after the key for the next call."""
    model = tmp_path / "model"
    words = [f"word{n} some thing {n * n}; " for n in range(200)]
    tokenizer = write_tokenizer(model, words)
    reply = "".join(words)
    ids = (tokenizer.encode(reply * 4).ids * 9)[:10_000]
    assert len(ids) == 10_000
    versions = tuple(VersionSpan(run_id="run", version=n, start=2000 * n, end=2000 * n + 2000) for n in range(5))
    logprobs = pack_floats([-((n * 37) % 100) / 15 for n in range(10_000)])
    call = sampled(tokenizer, "c1", "go", "", ids=tuple(ids), response_logprobs=logprobs, spans=versions)
    small = sampled(tokenizer, "c0", "go", "short", received_us=-5)
    stage = DashboardStage([small, call, facts.completed("g", "t", calls=2, reward=1.0)])
    stage.report(run_started(model))
    with stage.served() as url:
        one = BrowserSession(browser, url, viewport={"width": 1600, "height": 900})
        page = one.open("/tokens?g=g&t=t&c=c0", waits_for=LINES)
        page.evaluate(TIMED)
        until(page, "window.tookMs !== undefined")
        assert page.evaluate("document.querySelectorAll('*').length") < 5000
        one.close()
