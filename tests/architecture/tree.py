"""The source files of the rooms, parsed once."""

import ast
import gc
from functools import cache
from pathlib import Path

from claw_r1.claw.show import tables

ROOT = Path(__file__).resolve().parents[2]
ROOMS = tables.ROOMS
GENERATED = {"schemas/events.py"}


@cache
def sources(*folders: str) -> dict[str, ast.Module]:
    """Path below the root -> the parsed module, for every file of the rooms, the examples and these folders."""
    gc.disable()  # it would look through what lasts, again and again, for four fifths of the time
    try:
        return {
            **_parsed("examples", *ROOMS),
            **{path: tree for each in folders for path, tree in _parsed(each).items()},
        }
    finally:
        gc.freeze()
        gc.enable()


@cache
def _parsed(*folders: str) -> dict[str, ast.Module]:
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in files}


def function_lines() -> list[tuple[str, int]]:
    """`path:name` of each function that no generator wrote, and its lines, docstring and all."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    functions = [(path, node) for path, tree in written().items() for node in ast.walk(tree) if isinstance(node, kinds)]
    return [(f"{path}:{node.name}", (node.end_lineno or node.lineno) - node.lineno + 1) for path, node in functions]


def written(*folders: str) -> dict[str, ast.Module]:
    """Returns the modules of `sources` that no generator wrote."""
    return {path: tree for path, tree in sources(*folders).items() if path not in GENERATED}
