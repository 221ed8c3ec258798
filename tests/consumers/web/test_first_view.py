"""The first view of a page asks for all that it needs at once, and for nothing else."""

import re

import pytest

from claw_r1.consumers.dashboard.app import MODULES
from claw_r1.consumers.dashboard.app import STATIC as DASHBOARD
from claw_r1.consumers.web import first_view
from claw_r1.consumers.web.app import STATIC

FOLDERS = {"/web/": STATIC, "/page/": DASHBOARD}
INDEX = (DASHBOARD / "index.html").read_text()


@pytest.mark.parametrize("view", MODULES.values(), ids=list(MODULES))
def test_every_module_of_a_view_is_named_once(view: str) -> None:
    """Its own, the frame's and what these import; no other view comes with it."""
    modules = first_view.modules(INDEX, FOLDERS, view)
    assert len(modules) == len({*modules})
    assert {"/page/dashboard.js", view, "/web/shell.js", "/web/vendor/preact.js"} <= {*modules}
    others = {each for each in modules if "/views/" in each} - {view}
    assert others == ({"/page/views/lab.js"} if view.endswith("batch.js") else set())
    drawn = {"/page/views/overview.js", "/page/views/runs.js"}
    if view not in (*drawn, "/page/views/rewards.js"):
        assert "/web/vendor/uplot.js" not in modules


def test_all_style_sheets_are_one() -> None:
    """In their order, none twice, and the document names no other."""
    written = first_view.document(INDEX, FOLDERS, MODULES["/overview"])
    assert re.findall(r'rel="stylesheet" href="([^"]+)"', written) == [first_view.STYLE]
    sheet = first_view.style(INDEX, FOLDERS)
    sheets = [*sorted((DASHBOARD / "views").glob("*.css")), STATIC / "shell.css", DASHBOARD / "dashboard.css"]
    assert {sheet.count(each.read_text()) for each in sheets} == {1}
    assert sheet.index("--ground:") < sheet.index(".bar {") < sheet.index(".stations")
