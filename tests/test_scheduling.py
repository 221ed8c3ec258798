"""Tests side by side, as `make test` runs them: a process that dies costs the test that it ran and no other."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from claw_r1.claw.home import PROJECT
from claw_r1.claw.install.steps import SIDE_BY_SIDE
from tests.scheduling import HEAVY_FILES

pytestmark = pytest.mark.process
VLLM = "pytest.mark.vllm"
TESTS = 7
# Which test of which file ends its process: in the middle, the first, the last one, two of one file, one in its fixture, none.
DYING = {"a": {3}, "b": {0}, "c": {TESTS - 1}, "d": {2, 5}, "e": {4}, "f": set(), "g": {1}, "h": {TESTS - 1}}
HANGING = "h"
"""The file whose test does not end its process but outlives its time limit, and hears no signal."""
FILE = """
import os
import signal
import time
from pathlib import Path
import pytest

@pytest.fixture
def dies(request):
    if request.getfixturevalue("number") in {dying}:
        if {hanging}:
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            time.sleep(1000)
        os._exit(3) if {quietly} else os.kill(os.getpid(), 4)

@pytest.mark.parametrize("number", range({tests}))
def test_one(number, dies):
    pass

"""
CONFTEST = """
from pathlib import Path
import pytest
from tests import scheduling
from tests.scheduling import pytest_runtest_protocol, pytest_xdist_make_scheduler

scheduling.LAST_RESORT_S = 1

def pytest_addoption(parser):
    parser.addini("timeout", "as pytest-timeout has it", default="10")

@pytest.hookimpl
def pytest_runtest_setup(item):
    with Path("begun").open("a") as file:
        file.write(item.nodeid + "\\n")
"""


def test_a_process_that_dies_costs_one_test(tmp_path: Path) -> None:
    """Of eight files in three processes seven hold tests that end or hold theirs: those fail by name, each begun once, all others pass."""
    for name, dying in DYING.items():
        text = FILE.format(dying=dying or "()", quietly=name == "e", hanging=name == HANGING, tests=TESTS)
        (tmp_path / f"test_{name}.py").write_text(text)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {PROJECT}\n")
    plugins = ["-p", "xdist", "-p", "xdist.looponfail", "-p", "no:faulthandler"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, *SIDE_BY_SIDE],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    dead = {f"test_{name}.py::test_one[{number}]" for name, numbers in DYING.items() for number in numbers}
    everything = {f"test_{name}.py::test_one[{number}]" for name in DYING for number in range(TESTS)}
    assert f"{len(dead)} failed, {len(everything) - len(dead)} passed" in done.stdout, done.stdout
    assert done.returncode == 1
    failed = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("FAILED ")}
    assert failed == dead
    assert Counter((tmp_path / "begun").read_text().split()) == Counter(everything), "each test is begun once"


def test_torch_has_one_thread() -> None:
    """No test waits in a barrier for a thread that has no core, whichever module of the whole run has loaded torch first."""
    import torch

    assert torch.get_num_threads() == 1


def test_no_two_engines_are_started_at_once() -> None:
    """Each file whose tests are marked `vllm` stands in the list of those that one process runs, and no other."""
    marked = {
        path.relative_to(PROJECT).as_posix()
        for path in (PROJECT / "tests").rglob("test_*.py")
        if VLLM in path.read_text()
    }
    assert {*HEAVY_FILES} == marked - {"tests/test_scheduling.py"}
