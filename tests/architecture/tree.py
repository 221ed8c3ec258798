"""The source files of the rooms, parsed once."""

import ast
from functools import cache
from pathlib import Path

from claw_r1.claw.show import tables

ROOT = Path(__file__).resolve().parents[2]
ROOMS = tables.ROOMS
GENERATED = {"schemas/events.py"}


@cache
def sources() -> dict[str, ast.Module]:
    """Path below the root -> the parsed module, for every file of the rooms and the examples."""
    files = [path for room in (*ROOMS, "examples") for path in sorted((ROOT / room).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in files}


def written() -> dict[str, ast.Module]:
    """As `sources`, without what a generator wrote."""
    return {path: tree for path, tree in sources().items() if path not in GENERATED}
