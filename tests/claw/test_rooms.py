"""The commands that are rooms, typed in a folder where a person has names of ours."""

import ast
import sys
from pathlib import Path

import pytest

from tests.architecture.tree import sources
from tests.claw.foreign import COMMANDS, folder_with_our_names, helps

ARGV_OF_MODULES = "runtime/processes/child.py"
OTHERS_FOLDERS = {"consumers/sandbox/grading.py": "the sandbox's own folder, in which only what was put there lies"}


@pytest.mark.process
def test_a_folder_with_our_names_changes_no_command(tmp_path: Path) -> None:
    """A `schemas.py` breaks nothing, and a folder `gateway` is not run in place of ours: nine commands say their own help."""
    claw = [sys.executable, "-P", "-m", "claw_r1.claw"]
    assert helps(claw, folder_with_our_names(tmp_path)) == dict.fromkeys(COMMANDS, "")


def test_a_module_is_started_in_one_way() -> None:
    """No program that we start as `python -m` looks for modules in the working folder: `module_argv` alone writes that."""
    own = {path for path, tree in sources().items() for node in ast.walk(tree) if _starts_a_module(node)}
    assert own - OTHERS_FOLDERS.keys() == {ARGV_OF_MODULES}


def _starts_a_module(node: ast.AST) -> bool:
    """A list or tuple with `sys.executable` and "-m" in it."""
    if not isinstance(node, ast.List | ast.Tuple):
        return False
    words = [ast.unparse(each) for each in node.elts]
    return "sys.executable" in words and "'-m'" in words
