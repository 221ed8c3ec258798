"""Every view, before a pool in which each text that an agent or a person can write attacks: nothing runs, and everybody can use it.

Screenshots of all views in both themes are left in `.tools/screenshots/`.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import axe_playwright_python
import pytest
from playwright.sync_api import Browser, Page, expect

from claw_r1.consumers.dashboard.app import STATIC
from claw_r1.schemas.events import Event
from tests import facts
from tests.browser import browser
from tests.browser_session import PAYLOADS, BrowserSession, until
from tests.consumers.dashboard.overview_scene import plan
from tests.consumers.dashboard.pictures import VIEWS
from tests.consumers.dashboard.stage import DashboardStage, body
from tests.consumers.runs import observed
from tests.debian_programs import ROOT

__all__ = ["browser"]
pytestmark = [pytest.mark.process, pytest.mark.slow]
AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
SCREENSHOTS = ROOT / ".tools/screenshots"
HOSTILE = "".join(PAYLOADS.values())
IDS = {
    "g": "g" + PAYLOADS["script"] + PAYLOADS["bidi"],
    "t": "t" + PAYLOADS["link"] + PAYLOADS["control"],
    "c": "c" + PAYLOADS["svg"] + PAYLOADS["template"],
}
RUN = "run" + PAYLOADS["style"]
FINISHED = [
    path.stem for path in sorted((STATIC / "views").glob("*.js")) if "export default null" not in path.read_text()
]
QUERIES: dict[str, dict[str, str]] = {
    "group": {"g": IDS["g"], "a": IDS["t"], "b": "u"},
    "trajectory": {"g": IDS["g"], "t": IDS["t"]},
    "tokens": {"g": IDS["g"], "t": IDS["t"], "c": IDS["c"]},
    "explorer": {"kind": "trajectories", "text": "<script>"},
    "runs": {"run": RUN},
    "batch": {"run": RUN, "n": "0"},
}


def scene() -> list[Event]:
    """One group of two trajectories; each text of each fact is hostile."""
    group, trajectory, call_id = IDS["g"], IDS["t"], IDS["c"]
    message = {
        "role": "assistant",
        "content": HOSTILE,
        "reasoning": HOSTILE,
        "tool_calls": [{"id": HOSTILE, "type": "function", "function": {"name": HOSTILE, "arguments": HOSTILE}}],
    }
    _, request = body(
        {
            "messages": [
                {"role": "system", "content": HOSTILE},
                {"role": "user", "name": HOSTILE, "content": [{"type": "text", "text": HOSTILE}, {"type": "image_url", "image_url": {"url": "http://evil.example/i.png"}}]},
                {"role": HOSTILE, "content": HOSTILE},
            ],
            "tools": [{"type": "function", "function": {"name": HOSTILE, "description": HOSTILE, "parameters": {}}}],
        }
    )  # fmt: skip
    answer, _ = body({"choices": [{"index": 0, "message": message}]})
    marks: dict[str, Any] = {"agent": HOSTILE, "tags": (HOSTILE,), "task": json.dumps(HOSTILE)}
    call = {"request": request, "response_body": answer, "model_id": HOSTILE, "upstream": HOSTILE, "worker_id": HOSTILE}
    return [
        facts.opened(group, expected_size=2, **marks),
        facts.started(group, trajectory, metadata=json.dumps(HOSTILE), **marks),
        facts.call(group, trajectory, call_id, **call),
        facts.call(group, "u", "d", **call),
        facts.failure(group, trajectory, "failed", message=HOSTILE),
        facts.reward(group, trajectory, 0.5, source=f"judge{HOSTILE}", name=f"style{HOSTILE}", call_id=call_id),
        facts.curated(group, trajectory, call_id, who=HOSTILE, note=HOSTILE, tags=(HOSTILE,), scores={f"{HOSTILE}@1": 0.5}),
        facts.preferred(group, trajectory, "u", source=f"human:{HOSTILE}", comment=HOSTILE),
        facts.edited(group, trajectory, call_id, source=f"human:{HOSTILE}", message=json.dumps(message)),
        facts.completed(group, trajectory, calls=1, reward=1.0),
        facts.completed(group, "u", calls=1, reward=0.0, status="failed"),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    stage = DashboardStage(scene())
    stage.report(
        observed.started(RUN, json.dumps({"model_dir": HOSTILE, "note": HOSTILE})),
        plan(0, IDS["g"], (True, False), RUN, (IDS["t"], "u")),
        observed.trained(0, 0.5, RUN),
    )
    with stage.served() as address:
        yield address


QUIET = (
    "performance.now() - Math.max(...performance.getEntriesByType('resource').map((each) => each.responseEnd)) > 500"
)


def test_pictures_are_drawn_of_every_view() -> None:
    """`make pictures` leaves none out."""
    assert {urlsplit(each).path.strip("/") for each in VIEWS.values()} == {*FINISHED}


def address(name: str) -> str:
    """Of a view, with everything hostile in it."""
    return f"/{name}?{urlencode(QUERIES.get(name, {}), errors='surrogatepass')}"


@pytest.mark.parametrize("name", FINISHED)
def test_hostile_texts_are_shown_and_do_nothing(browser: Browser, url: str, name: str) -> None:
    """In both themes and on a telephone: nothing runs, nothing is loaded, nothing is reported, and no serious fault of access.

    Whoever has no mouse gets everywhere: something can be reached by keys, and `?` names the keys.
    """
    one = BrowserSession(browser, url)
    page = one.open(address(name), waits_for="header .stream.live")
    settled(page)
    assert page.locator("main").inner_text().strip()
    commands = page.locator("main .command code").all_text_contents()
    assert [each for each in commands if re.search(r"[\x00-\x1f\x7f\u200b-\u206f]", each)] == [], "it moves a terminal"
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.evaluate(f"() => {{ {AXE}; return null; }}")
    for theme in ("light", "dark"):
        page.evaluate("(theme) => { document.documentElement.dataset.theme = theme; }", theme)
        page.screenshot(path=SCREENSHOTS / f"hostile-{name}-{theme}.png")
        rules = {} if theme == "light" else {"runOnly": ["color-contrast"]}  # all else is the same in the dark
        found_by_axe = page.evaluate("(rules) => axe.run(document, {resultTypes: ['violations'], ...rules})", rules)
        serious = {each["id"]: [node["html"][:200] for node in each["nodes"][:3]] for each in found_by_axe["violations"] if each["impact"] in ("serious", "critical")}  # fmt: skip
        assert serious == {}, theme
    assert page.locator("main").locator("button, a, input, select, [tabindex]").count() > 0
    page.keyboard.press("?")
    assert re.search(r"\S", page.get_by_role("dialog").inner_text())
    page.keyboard.press("Escape")
    page.set_viewport_size({"width": 360, "height": 740})
    until(page, "document.documentElement.scrollWidth <= 360")
    one.clean(page)
    one.close()


def settled(page: Page) -> None:
    """Waits until the view has all its answers: nothing is being read, and for half a second nothing was asked for."""
    expect(page.locator("main .reading")).to_have_count(0)
    until(page, QUIET)
