"""The batch lab in a real Chromium: a text that is a spec, and what it would train beside the run's own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from claw_r1.datapool.batch.spec import of_text
from tests.browser import browser
from tests.browser_session import PAYLOADS, BrowserSession, until
from tests.consumers.dashboard.training import TrainingStage, world
from tests.trainer.pooled import group

__all__ = ["browser"]
pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture
def session(browser: Browser) -> Iterator[tuple[TrainingStage, BrowserSession]]:
    stage = world()
    with stage.served() as url:
        one = BrowserSession(browser, url)
        yield stage, one
        one.close()


def test_a_what_if(session: tuple[TrainingStage, BrowserSession], tmp_path: Path) -> None:
    """The run's own spec first; what differs is said; the address, the text and the saved file are the same spec."""
    _, one = session
    page = one.open("/lab", waits_for=".lab-sizes")
    expect(page.get_by_role("heading", name="2 of 2 groups")).to_be_visible()
    spec = page.get_by_label("Batch spec, YAML")
    expect(spec).to_have_value("groups_per_batch: 2\ngroup_size: 2\n")
    spec.fill("group_size: 2\ngroups_per_batch: 2\nzero_variance: drop\n")
    expect(page.get_by_role("heading", name="What differs")).to_be_visible()
    rows = page.locator("section[aria-label=Batch] table").nth(1).locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("in the batch")
    expect(rows.nth(0)).to_contain_text("zero_variance")
    text = "group_size: 2\ngroups_per_batch: 3\nzero_variance: drop\n"
    spec.fill(text)
    expect(page.get_by_role("heading", name="2 of 3 groups, 1 more to wait for")).to_be_visible()
    with page.expect_download() as saved:
        page.get_by_role("button", name="save spec.yaml").click()
    saved.value.save_as(tmp_path / "spec.yaml")
    assert of_text((tmp_path / "spec.yaml").read_text()) == of_text(text)
    page.reload()
    expect(page.get_by_role("heading", name="2 of 3 groups, 1 more to wait for")).to_be_visible()
    page.set_viewport_size({"width": 360, "height": 700})
    until(page, "document.documentElement.scrollWidth <= 360")
    page.keyboard.press("0")
    expect(page.get_by_role("heading", name="2 of 2 groups")).to_be_visible()
    one.clean(page)


def test_a_typo_is_told(session: tuple[TrainingStage, BrowserSession]) -> None:
    """The model's sentence; the fields stand beside the text."""
    _, one = session
    page = one.open("/lab?spec=group_sizes%3A+2", waits_for=".lab-problem")
    expect(page.locator(".lab-problem")).to_have_text("group_sizes: no such field; did you mean group_size?")
    page.get_by_text("fields", exact=True).click()
    expect(page.locator(".lab-fields")).to_contain_text("The channel of a group")
    page.get_by_label("Batch spec, YAML").fill("group_size: 2")
    expect(page.locator(".lab-problem")).to_have_count(0)
    assert [text for text in one.complaints if "422" not in text] == []
    one.complaints.clear()  # the browser's own words on an answer of 422
    one.clean(page)


def test_what_others_wrote_stays_text_and_the_preview_is_live(browser: Browser) -> None:
    """Hostile group and run names in rows, reasons, commands; a group that becomes ready enters the batch without a reload."""
    history = [fact for n, payload in enumerate(PAYLOADS.values()) for fact in group(payload, [0.0, 1.0], at_us=n)]
    stage = TrainingStage(history)
    stage.begin("{}", run_id=PAYLOADS["script"])
    with stage.served() as url:
        one = BrowserSession(browser, url)
        page = one.open("/lab?spec=%7Bgroup_size%3A+2%2C+groups_per_batch%3A+9%7D&run=run", waits_for=".lab-row")
        expect(page.get_by_role("heading", name="8 of 9 groups")).to_be_visible()
        stage.fill(group("fresh", [0.0, 1.0], at_us=99))
        expect(page.get_by_role("heading", name="9 of 9 groups, a whole batch")).to_be_visible()
        until(page, "document.querySelectorAll('.lab-row').length === 18")
        one.clean(page)
        one.close()
