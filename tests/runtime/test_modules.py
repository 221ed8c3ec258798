"""A program that lacks its libraries names the extra that brings them, in one line."""

import ast
import subprocess
import sys

import pytest

from claw_r1.runtime.modules import EXTRAS
from tests.architecture.tree import sources

BASE = {
    "click", "confluent_kafka", "fastavro", "msgspec", "orjson", "prometheus_client", "psutil", "pydantic",
    "pydantic_core", "pydantic_settings", "rich", "structlog", "typer", "typing_extensions", "yaml",
}  # fmt: skip
"""What the project's own dependencies bring."""
NOWHERE = {"openai": "examples of others' clients"}
USED_BY_OTHERS = {"cramjam", "jgo"}
"""By aiokafka, as a program."""
LACKING = """
import runpy, sys
for module in sys.argv[2].split(","): sys.modules[module] = None  # importing it is a ModuleNotFoundError
program, sys.argv = sys.argv[1], ["program", *sys.argv[3:]]
runpy.run_module(program, run_name="__main__")
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("program", "extra", "arguments"),
    [
        ("claw_r1.gateway", "gateway", ()),
        ("claw_r1.streams", "streams", ()),
        ("claw_r1.rollout", "rollout", ("--model", "/nowhere", "--model-id", "m")),
        ("claw_r1.agentflow", "agentflow", ("run", "--command", "true")),
        ("claw_r1.consumers.dashboard", "consumers", ()),
        ("claw_r1.claw", "consumers", ("registry",)),
    ],
)
def test_a_missing_extra_is_one_line_that_names_it(program: str, extra: str, arguments: tuple[str, ...]) -> None:
    """Exit code 2, no traceback; `--help` needs none of its libraries."""
    started = [sys.executable, "-P", "-c", LACKING, program, ",".join(EXTRAS[extra])]
    lacking = subprocess.run([*started, *arguments], capture_output=True, text=True, check=False)
    assert (lacking.returncode, lacking.stdout) == (2, "")
    install = "claw setup rollout" if extra == "rollout" else f"pip install 'claw-r1[{extra}]'"
    assert f"belongs to the extra {extra}: {install}" in lacking.stderr
    assert len(lacking.stderr.splitlines()) == 1
    verb = [word for word in arguments[:1] if not word.startswith("-")]
    helped = subprocess.run([*started, *verb, "--help"], capture_output=True, text=True, check=False)
    assert helped.returncode == 0, helped.stderr


def test_every_library_belongs_to_an_extra_or_to_all() -> None:
    """What a room imports is in the table of extras, so that the line can name where it comes from."""
    imported = {module for tree in sources().values() for node in ast.walk(tree) for module in _modules(node)}
    ours = {"claw_r1", "examples", "infra", *sys.stdlib_module_names}
    table = {module for modules in EXTRAS.values() for module in modules}
    assert imported - ours - BASE - NOWHERE.keys() == table - USED_BY_OTHERS


def _modules(node: ast.AST) -> set[str]:
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        names = [node.module]
    return {name.partition(".")[0] for name in names}
