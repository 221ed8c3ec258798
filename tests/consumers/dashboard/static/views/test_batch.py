"""A batch in a real Chromium: every link that names one leads to it, by keys to the ones beside it, and the lab as of it."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser import browser
from tests.browser_session import BrowserSession, until
from tests.consumers.dashboard.training import LAX, TrainingStage, four_batches

__all__ = ["browser"]
pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture
def session(browser: Browser) -> Iterator[tuple[TrainingStage, BrowserSession]]:
    stage = four_batches(task='"verbs"')
    with stage.served() as url:
        one = BrowserSession(browser, url)
        yield stage, one
        one.close()


def test_a_point_opens_its_batch_and_a_batch_its_lineage(session: tuple[TrainingStage, BrowserSession]) -> None:
    """By keys alone; the address holds it, and what comes of it is there without a reload."""
    stage, one = session
    page = one.open("/runs", waits_for=".curve-plot canvas")
    page.get_by_role("slider", name="reward", exact=True).focus()
    for key in ("End", "ArrowLeft", "Enter"):
        page.keyboard.press(key)
    expect(page.get_by_role("heading", name="Batch 2 of run")).to_be_visible()
    until(page, "location.pathname + location.search === '/batch?run=run&n=2'")
    members = page.locator(".batch-members tbody tr")
    expect(members).to_have_count(4)
    expect(members.nth(0)).to_contain_text("verbs")
    expect(page.locator(".tiles")).to_contain_text("0 of 2")
    expect(page.locator(".lane")).to_have_count(4)
    page.keyboard.press("]")
    expect(page.get_by_role("heading", name="Batch 3 of run")).to_be_visible()
    page.keyboard.press("]")  # there is none behind it
    page.get_by_role("link", name="version 4", exact=True).click()
    expect(page.get_by_role("heading", name="version run/4")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", name="Batch 3 of run")).to_be_visible()
    stage.train(4, LAX)
    expect(page.get_by_role("button", name="batch after")).to_be_enabled()
    page.keyboard.press("]")
    expect(page.get_by_role("heading", name="Batch 4 of run")).to_be_visible()
    expect(page.locator(".batch-head")).to_contain_text("made version 5")
    page.keyboard.press("Escape")
    until(page, "location.pathname + location.search === '/runs?run=run'")
    one.clean(page)


def test_every_link_to_a_batch_leads_to_it(session: tuple[TrainingStage, BrowserSession]) -> None:
    """From a trajectory's side, from the chip of its call, from its group and from lineage."""
    _, one = session
    page = one.open("/batch?run=run&n=2", waits_for=".batch-members tbody tr")
    page.locator(".batch-members tbody a").nth(0).click()
    page.get_by_role("link", name="batch 2 of run", exact=True).click()
    expect(page.get_by_role("heading", name="Batch 2 of run")).to_be_visible()
    page.go_back()
    page.locator(".call .chip", has_text="trained in batch 2").first.click()
    expect(page.get_by_role("heading", name="Batch 2 of run")).to_be_visible()
    for other in ("/group?g=g4", "/runs?lineage=g4"):
        page.goto(one.url + other)
        page.get_by_role("link", name="batch 2").first.click()
        expect(page.get_by_role("heading", name="Batch 2 of run")).to_be_visible()
    one.clean(page)


def test_the_lab_stands_in_the_batch(session: tuple[TrainingStage, BrowserSession]) -> None:
    """What was trained, by its own spec; another one says what it had changed; the address holds both."""
    _, one = session
    page = one.open("/batch?run=run&n=1", waits_for=".batch-members tbody tr")
    page.keyboard.press("l")
    expect(page.get_by_role("heading", name="2 of 2 groups")).to_be_visible()
    expect(page.locator(".lab-row")).to_have_count(4)
    page.get_by_label("Batch spec, YAML").fill("{group_size: 2, groups_per_batch: 1, staleness_max: 99}")
    expect(page.get_by_role("heading", name="What differs")).to_be_visible()
    until(page, "location.pathname === '/batch' && location.search.includes('groups_per_batch')")
    one.clean(page)
