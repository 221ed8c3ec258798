"""What people type first works on a fresh clone, and what a change must pass cannot be passed by accident."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from claw_r1.claw.home import PROJECT

pytestmark = [pytest.mark.process, pytest.mark.skipif(shutil.which("make") is None, reason="needs make")]


def without_make(**environment: str) -> dict[str, str]:
    """Our environment without what a make around the tests (`make test`) left in it, which changes what a make says."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))} | environment


def test_help_names_what_can_be_made_and_measured() -> None:
    """Each target with a word about it is listed, and each benchmark that the line of `bench-%` names is there."""
    listed = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=PROJECT,
        env=without_make(),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    targets = [line.split(":")[0] for line in (PROJECT / "Makefile").read_text().splitlines() if "  ## " in line]
    assert [line.split()[0] for line in listed.splitlines()] == targets
    rooms = re.findall(r"bench-([a-z]+)", listed)
    assert {"agents", "weights"} <= set(rooms)
    assert [room for room in rooms if not (PROJECT / "bench" / room / "__main__.py").is_file()] == []


@pytest.mark.parametrize("level", ["0", "1"])
def test_benchmarks_set_up_first(level: str) -> None:
    """`make bench-x` installs what it needs before it runs, as demo and test do, also where a make runs these tests."""
    planned = subprocess.run(
        ["make", "--no-print-directory", "-n", "bench-gateway"],
        cwd=PROJECT,
        env=without_make(MAKELEVEL=level),
        capture_output=True,
        text=True,
        check=True,
    )
    assert [line.split()[1:3] for line in planned.stdout.splitlines()] == [
        ["claw/bootstrap.py", "setup"],
        ["-m", "bench.gateway"],
    ]


BOOTSTRAP = """
import os, subprocess, sys
if "setup" in sys.argv:
    sys.exit()
if os.path.exists("no-setup"):
    sys.exit("claw setup: no room on the disk")  # with the same exit code as tests that failed
sys.exit(subprocess.call([sys.executable, "-m", "pytest", "-p", "xdist", "-n", "1", *sys.argv[2:]]))
"""
PASSES = "import os\ndef test_good(): assert os.environ['MAKELEVEL'] == '1', 'not run by make'\n"
ONCE = "from pathlib import Path\nmark = Path(__file__).with_name('was-here')\nseen = mark.exists()\nmark.touch()\n"
FAILS_ONCE = PASSES + "def test_shy():\n    import once\n    assert once.seen\n"
FAILS = PASSES + "def test_bad(): assert False\n"
DIES = PASSES + "def test_shy():\n    os.kill(os.getpid(), 4)\ndef test_bad():\n    import once\n    assert once.seen\n"
BREAKS_ONCE = "import once\nassert once.seen\n" + PASSES


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with our Makefile and our `.ci/run`, whose set-up and check are none."""
    for folder in (".ci", "claw", "infra"):
        (tmp_path / folder).mkdir()
    shutil.copy(PROJECT / "Makefile", tmp_path)
    shutil.copy(PROJECT / ".ci" / "run", tmp_path / ".ci")
    (tmp_path / "claw" / "bootstrap.py").write_text(BOOTSTRAP)
    (tmp_path / "infra" / "check.sh").write_text("#!/bin/sh\n")
    (tmp_path / "infra" / "check.sh").chmod(0o755)
    (tmp_path / "once.py").write_text(ONCE)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    return tmp_path


def run(project: Path, tests: str, *arguments: str) -> tuple[bool, list[str]]:
    """Whether `.ci/run` was content, and the lines it said, in the order of a log."""
    (project / "test_it.py").write_text(tests)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [".ci/run", *arguments],
        cwd=project,
        env=without_make(PATH=path, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode == 0, done.stdout.splitlines()


@pytest.mark.parametrize(
    ("tests", "content", "ends"),
    [(PASSES, True, "1 passed"), (FAILS_ONCE, True, "1 passed"), (FAILS, False, "1 failed")],
    ids=["passes", "fails-once", "fails"],
)
def test_what_fails_twice_fails(project: Path, tests: str, content: bool, ends: str) -> None:
    """Failed tests run once more, alone, counted and named; the last line is that of the last run of tests."""
    good, lines = run(project, tests)
    assert (good, ends in lines[-1]) == (content, True), lines[-5:]
    repeated = [index for index, line in enumerate(lines) if "== 1 tests needed a second try" in line]
    assert len(repeated) == (tests != PASSES)
    assert all(lines[index + 1].strip() in ("test_it.py::test_shy", "test_it.py::test_bad") for index in repeated)


def test_a_test_that_ends_its_process_hides_no_other(project: Path) -> None:
    """It fails by its name in both tries, and the test behind it, which passes the second time, is none of its failures."""
    good, lines = run(project, DIES)
    assert not good
    assert any("== 2 tests needed a second try" in line for line in lines), lines
    assert "1 failed, 1 passed" in lines[-1], lines[-5:]
    assert sum("crashed while running 'test_it.py::test_shy'" in line for line in lines) >= 2


def test_what_could_not_be_collected_gets_no_second_try(project: Path) -> None:
    """A file that breaks on import hides the tests of all others: a second try of that file alone proves nothing."""
    good, lines = run(project, BREAKS_ONCE)
    assert not good, lines[-5:]
    assert not any("once more" in line for line in lines)


def test_a_setup_that_fails_is_no_pass(project: Path) -> None:
    """Not even where an earlier run left failed tests on record that pass by now."""
    assert not run(project, FAILS)[0]
    (project / "no-setup").touch()
    good, lines = run(project, PASSES)
    assert not good, lines[-5:]


def test_arguments_reach_the_tests_as_they_were_given(project: Path) -> None:
    """`.ci/run -k "a or b"` is one argument after `-k`."""
    good, lines = run(project, FAILS, "-k", "good or nothing")
    assert good, lines[-5:]
    assert "1 passed" in lines[-1]
