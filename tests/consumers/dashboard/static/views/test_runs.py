"""Runs in a real Chromium: curves overlaid, lineage as a table of links, all of it live and by keys."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser import browser
from tests.browser_session import PAYLOADS, BrowserSession, until
from tests.consumers.dashboard.training import LAX, TrainingStage, four_batches
from tests.trainer.pooled import group

__all__ = ["browser"]
pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture
def session(browser: Browser) -> Iterator[tuple[TrainingStage, BrowserSession]]:
    stage = four_batches()
    with stage.served() as url:
        one = BrowserSession(browser, url)
        yield stage, one
        one.close()


def test_each_link_of_a_lineage_leads_on(session: tuple[TrainingStage, BrowserSession]) -> None:
    """From a call to the weights that it made, back to who sampled what they were trained on, and to all that this one sampled."""
    _, one = session
    page = one.open("/runs?lineage=c1", waits_for="table")
    links = page.get_by_label("Links", exact=True)
    rows = links.locator("tbody tr")
    relations = ["sampled by", *["trained on"] * 4, "in batch", "made weights"]
    expect(rows.locator("td:first-child")).to_have_text(relations * 4)
    expect(rows.locator("time")).to_have_count(4 * len(relations))
    links.get_by_role("link", name="version run/4").click()
    expect(rows.locator("td:first-child")).to_have_text(relations)
    expect(rows.locator("td:last-child")).to_have_text(
        ["version run/0", "t0", "t1", "t0", "t1", "batch 3", "version run/4"]
    )
    expect(rows.nth(1)).to_contain_text("sampled by run/0")
    rows.nth(1).get_by_role("link").click()
    until(page, "location.pathname + location.search === '/trajectory?g=g6&t=t0'")
    page.go_back()
    links.get_by_role("link", name="batch 3").click()
    expect(page.get_by_role("heading", name="Batch 3 of run")).to_be_visible()
    page.go_back()
    links.get_by_role("link", name="version run/0").click()
    expect(page.get_by_role("heading", name="version run/0")).to_be_visible()
    expect(rows.locator("td:first-child")).to_have_text(["sampled next"] * 20)
    rows.first.get_by_role("link").click()
    until(page, "location.pathname === '/trajectory'")
    one.clean(page)


def test_two_runs_are_overlaid(session: tuple[TrainingStage, BrowserSession]) -> None:
    """Both in each curve, over tokens or time; the command that compares their settings."""
    stage, one = session
    stage.begin('{"learning_rate": 0.2}', "other")
    stage.train(0, LAX, "other", reward=0.9)
    page = one.open("/runs?run=run&run=other&x=tokens&m=reward", waits_for=".curve-plot canvas")
    expect(page.locator(".curve")).to_have_count(1)
    expect(page.locator(".curve-legend")).to_contain_text("other")
    compare = page.get_by_text("claw runs compare")
    expect(compare).to_contain_text("other")
    page.get_by_label("x axis").select_option("time")
    until(page, "location.search.includes('x=time')")
    page.get_by_label("draw other").uncheck()
    expect(compare).to_have_count(0)
    expect(page.get_by_role("heading", name="Settings")).to_be_visible()
    one.clean(page)


def test_all_metrics_are_drawn_however_many(session: tuple[TrainingStage, BrowserSession]) -> None:
    """The button's choice is kept in the address; from it one can be taken out."""
    stage, one = session
    stage.begin(run_id="other")
    stage.train(0, LAX, "other", **{f"metric_{n}": float(n) for n in range(80)})
    page = one.open("/runs?run=other", waits_for=".curve-plot canvas")
    page.get_by_text("metrics", exact=False).first.click()
    with page.expect_request(lambda request: "runs/curves" in request.url and "metric=" not in request.url):
        page.get_by_role("button", name="all", exact=True).click()
    expect(page.locator(".curve")).to_have_count(85)
    page.get_by_role("checkbox", name="metric_7", exact=True).uncheck()
    expect(page.locator(".curve")).to_have_count(84)
    one.clean(page)


def test_what_trainers_and_agents_wrote_stays_text(browser: Browser) -> None:
    """Hostile names of runs, groups, reasons, metrics, settings; a run without batches and an id that nobody knows say so."""
    stage = TrainingStage(
        [
            fact
            for n, each in enumerate(PAYLOADS.values())
            for fact in group(each, [0.0, 1.0], at_us=n, run=PAYLOADS["script"])
        ]
    )
    with stage.served() as url:
        one = BrowserSession(browser, url)
        page = one.open("/runs", waits_for=".panel")
        expect(page.locator("main")).to_contain_text("No run has written")
        run = PAYLOADS["script"]
        stage.begin('{"note": "<img src=x onerror=window.pwned=1>"}', run)
        expect(page.locator("main")).to_contain_text("curves begin with the first")
        stage.skip([PAYLOADS["bidi"]], PAYLOADS["svg"], run)
        stage.train(
            0, LAX.model_copy(update={"groups_per_batch": 7}), run, **{"reward": 0.5, PAYLOADS["template"]: 1.0}
        )
        page.wait_for_selector(".curve-plot canvas")
        page.get_by_text("metrics", exact=False).first.click()
        page.get_by_role("button", name="all", exact=True).click()
        page.get_by_role("slider", name=PAYLOADS["template"]).focus()
        page.keyboard.press("Enter")
        page.wait_for_selector(".batch-members td")
        page.keyboard.press("Escape")
        page.get_by_text("which groups").click()
        expect(page.locator(".runs-whole")).to_contain_text("U+202E")
        page.get_by_label("Lineage of").fill(f"{run}/1")
        page.keyboard.press("Enter")
        expect(page.get_by_label("Links", exact=True)).to_be_visible()
        page.get_by_label("Lineage of").fill(PAYLOADS["link"])
        page.keyboard.press("Enter")
        expect(page.get_by_label("Links", exact=True)).to_be_visible()
        page.get_by_label("Lineage of").fill("nobody")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Nothing is known of")).to_be_visible()
        one.clean(page)
        one.close()
