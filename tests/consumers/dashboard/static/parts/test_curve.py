"""Curves in a real Chromium: drawn in colours of the theme, walked by arrows, told as a table, and a point leads somewhere."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser import browser
from tests.browser_session import PAYLOADS, BrowserSession, until
from tests.consumers.dashboard.stage import DashboardStage

__all__ = ["browser"]
pytestmark = [pytest.mark.process, pytest.mark.slow]
DRAW = """async ([hostile, points]) => {
  const [{ render }, { html }, { Curve }] = await Promise.all([import("preact"), import("/web/shell.js"), import("/page/parts/curve.js")]);
  const box = document.createElement("div");
  document.body.prepend(box);
  window.draw = (more) => render(html`<${Curve} label="reward" x="batch" onPoint=${({ series, point }) => { window.opened = [series.label, point]; }}
    series=${[{ label: "a run", points: [[0, 0.1, "b0"], [1, null], [2, 0.5, "b2"], ...more] }, { label: hostile, points }]} />`, box);
  window.draw([]);
}"""
INK = """() => {
  const canvas = document.querySelector(".curve canvas");
  if (canvas === null) return 0; // it comes after the slider
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const colour = getComputedStyle(document.querySelector(".curve .legend i")).color.match(/\\d+/g).map(Number);
  let count = 0;
  for (let at = 0; at < data.length; at += 4) if (data[at + 3] > 200 && colour.every((part, n) => Math.abs(data[at + n] - part) < 12)) count += 1;
  return count;
}"""


@pytest.fixture
def one(browser: Browser) -> Iterator[BrowserSession]:
    with DashboardStage().served() as url:
        session = BrowserSession(browser, url)
        yield session
        session.close()


def test_curves_are_drawn_walked_and_told(one: BrowserSession) -> None:
    """Both themes draw in their own colours; the arrows' value is said; Enter opens the point that was handed in."""
    page = one.open("/", waits_for="header .stream.live")
    page.evaluate(DRAW, [PAYLOADS["script"], [[2, 0.25], [5, 1]]])
    plot = page.get_by_role("slider", name="reward")
    expect(plot).to_have_attribute("aria-valuenow", "3")
    until(page, f"({INK})() > 20")
    for _ in range(3):
        page.get_by_role("button", name="system").or_(page.get_by_role("button", name="light")).or_(
            page.get_by_role("button", name="dark")
        ).click()
        until(page, f"({INK})() > 20")
    plot.focus()
    page.keyboard.press("Home")
    expect(plot).to_have_attribute("aria-valuetext", f"batch 0: a run 0.1, {PAYLOADS['script']} \u2013")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.evaluate("window.opened") == ["a run", [2, 0.5, "b2"]]
    page.evaluate("window.draw([[7, 0.75, 'b7']])")
    expect(plot).to_have_attribute("aria-valuemax", "4")
    page.get_by_text("as a table").click()
    expect(page.locator(".curve-table tbody tr")).to_have_count(5)
    one.clean(page)


BAND = DRAW.replace(
    "window.draw([]);",
    """
  const edge = (label, y) => ({ label, edge: true, points: [[0, y], [1, y]] });
  const mean = { label: "mean", points: [[0, 0.5], [1, 0.5]] };
  render(html`<${Curve} label="return" x="batch" series=${hostile ? [mean, edge("p10", 0), edge("p90", 1)] : [mean]} />`, box);
""",
)
PALE = INK.replace("data[at + 3] > 200", "data[at + 3] > 20 && data[at + 3] < 90")


def test_two_edges_are_a_band(one: BrowserSession) -> None:
    """What lies between them is filled in the colour of the first line; without them nothing is."""
    for edges in (False, True):
        page = one.open("/", waits_for="header .stream.live")
        page.evaluate(BAND, [edges, []])
        until(page, f"({INK})() > 20")
        pale = page.evaluate(PALE)
        assert (pale > 5000) is edges, pale
        one.clean(page)
