"""A consumer that nobody wants is deleted with its folder: nothing else stops working but what its `NEEDED_BY` says."""

import ast
from functools import cache
from pathlib import PurePosixPath

import pytest

from tests.architecture.tree import ROOT, sources

LIBRARIES = {"pool", "runs", "sandbox", "web"}
"""Libraries of several consumers and of `claw`: no programs, and not deletable."""
NEEDED_BY = {"lineage": {"dashboard"}, "rewards": {"dashboard"}}
"""Consumer -> the others that show what it folds, and go with it."""
CONSUMERS = sorted({path.parent.name for path in (ROOT / "consumers").glob("*/__init__.py")} - LIBRARIES)
COMMAND_LINE = "claw_r1.claw.cli"


@pytest.mark.parametrize("name", CONSUMERS)
def test_a_consumer_is_deletable(name: str) -> None:
    """Without its folder the command line starts, and so does every other consumer, whatever else it imports."""
    broken = _importers_of(f"claw_r1.consumers.{name}")
    assert COMMAND_LINE not in broken
    of_consumers = {module.split(".")[2] for module in broken if module.startswith("claw_r1.consumers.")}
    assert of_consumers - {name} == NEEDED_BY.get(name, set())
    assert {module.split(".")[1] for module in broken} <= {"consumers", "claw"}


def test_there_are_consumers_and_a_command_line() -> None:
    """Or the test above says nothing."""
    assert {"dashboard", "export", "rewards", "verify"} <= set(CONSUMERS)
    assert COMMAND_LINE in _imports()
    assert "claw_r1.consumers.dashboard.app" in _importers_of("claw_r1.consumers.lineage")


def _importers_of(package: str) -> set[str]:
    """Every module outside that cannot be imported without a package, since it or what it imports does so at its top."""
    broken = {module for module in _imports() if _is_in(module, package)}
    while True:
        more = {
            module
            for module, imported in _imports().items()
            if module not in broken and any(_is_in(each, package) or each in broken for each in imported)
        }
        if not more:
            return {module for module in broken if not _is_in(module, package)}
        broken |= more


def _is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


@cache
def _imports() -> dict[str, frozenset[str]]:
    """Module -> what it imports when it is imported; not what its functions import, nor what only types need."""
    modules = {}
    for path, tree in sources().items():
        name = ".".join(("claw_r1", *PurePosixPath(path).with_suffix("").parts)).removesuffix(".__init__")
        modules[name] = tree
    return {name: frozenset(_at_the_top(tree.body)) for name, tree in modules.items()}


def _at_the_top(body: list[ast.stmt]) -> set[str]:
    imported: set[str] = set()
    for node in body:
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
            imported |= _at_the_top([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            imported |= _at_the_top([*node.body, *node.orelse, *node.finalbody])
    return imported
