"""ARCHITECTURE.md says who may import whom, and it is so."""

import ast
import re

import pytest

from tests.architecture.tree import ROOMS, ROOT, sources

ROW = re.compile(r"^\| `(\w+)/` \|.*\| ([^|]*) \|$", re.MULTILINE)
WORD = re.compile(r"\w+")


def allowed() -> dict[str, set[str]]:
    """Room -> the rooms that ARCHITECTURE's table lets it import."""
    rows = ROW.findall((ROOT / "ARCHITECTURE.md").read_text())
    return {room: set(ROOMS) if cell == "everything" else set(WORD.findall(cell)) & set(ROOMS) for room, cell in rows}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_architecture_lets_it(room: str) -> None:
    """Each import of another room, at the top of a file or inside a function, stands in the table of rooms."""
    strangers = {
        f"{path}: {other}"
        for path, tree in sources().items()
        if path.startswith(f"{room}/")
        for other in _rooms(tree) - {room} - allowed()[room]
    }
    assert strangers == set()


def _rooms(tree: ast.Module) -> set[str]:
    modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    known = {*ROOMS, "examples"}  # the latter is in no wheel, so that nobody may import it
    return {module.removeprefix("claw_r1.").split(".")[0] for module in modules} & known
