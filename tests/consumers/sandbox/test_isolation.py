"""The sandbox's own root: what it has been told to bring lies there wherever it lies outside, and what cannot be had is named."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from claw_r1.consumers.sandbox import isolation
from claw_r1.consumers.sandbox.sandbox import ROOT, Sandbox, SandboxProgram, SandboxRefused

pytestmark = pytest.mark.process


@pytest.fixture
def below_tmp():
    """A folder below /tmp, wherever pytest's own are."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o777)  # the code is nobody where this is root
    yield folder
    shutil.rmtree(folder)


def child(python: Path, script: str, *arguments: object) -> str:
    """What a script says that another interpreter runs, with the project to import from."""
    argv = [python, "-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{script}", *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


OPENED = """
from claw_r1.consumers.sandbox.sandbox import Sandbox, SandboxProgram, SandboxRefused
try:
    with Sandbox() as sandbox:
        print('opened')
        print(sandbox.run(SandboxProgram(argv=[sys.executable, '-I', '-c', 'import sys; print(sys.prefix)'])).stdout.decode())
except SandboxRefused as error: print(error)
"""


def test_a_python_below_tmp_runs(below_tmp) -> None:
    """A virtual environment below /tmp is brought into the sandbox although the sandbox has a /tmp of its own."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", below_tmp / "venv"], check=True)
    assert child(below_tmp / "venv/bin/python", OPENED).split() == ["opened", str(below_tmp / "venv")]


def test_a_python_that_is_not_brought_is_refused_at_opening(below_tmp) -> None:
    """The trial runs Python itself, so that one that cannot run is one line at opening and not a refusal of each subject."""
    lonely = below_tmp / "python"
    lonely.symlink_to(sys.executable)
    said = child(lonely, OPENED)
    assert said.startswith("no sandbox can be made here")
    assert f"No such file or directory: '{lonely}'" in said


def test_a_folder_below_tmp_is_read_and_not_written(below_tmp) -> None:
    """What is readable below /tmp lies at its place, read-only, and the rest of /tmp is the sandbox's own to write."""
    (below_tmp / "data.txt").write_text("brought")
    (below_tmp / "beside").symlink_to(below_tmp)
    code = f"""
print(open('{below_tmp}/data.txt').read())
try: open('{below_tmp}/new', 'w')
except OSError as error: print(error.errno)
open('/tmp/own', 'w').write('x')
import os; print(sorted(os.listdir('/tmp')), os.getcwd())
"""
    with Sandbox(readable=[str(below_tmp)]) as sandbox:
        outcome = sandbox.run(SandboxProgram(argv=[sys.executable, "-I", "main.py"], files={"main.py": code.encode()}))
    said = outcome.stdout.decode().split("\n")
    assert said[:2] == ["brought", "30"], outcome  # EROFS
    assert {"own", "work", below_tmp.name} <= set(eval(said[2].rpartition(" ")[0]))
    assert not Path("/tmp/own").exists()
    assert not (below_tmp / "new").exists()


def test_a_link_on_the_way_leads_where_it_leads_outside(below_tmp) -> None:
    """A readable path through a link is brought as what the link leads to, however the names sort."""
    (below_tmp / "z/inner").mkdir(parents=True)
    (below_tmp / "z/inner/data.txt").write_text("brought")
    (below_tmp / "a").symlink_to(below_tmp / "z")
    readable = [str(below_tmp / "z/inner"), str(below_tmp / "a/inner"), str(below_tmp / "z")]
    code = f"print(open('{below_tmp}/a/inner/data.txt').read(), open('{below_tmp}/z/inner/data.txt').read())"
    with Sandbox(readable=readable) as sandbox:
        outcome = sandbox.run(SandboxProgram(argv=[sys.executable, "-I", "-c", code]))
    assert outcome.stdout == b"brought brought\n", outcome


@pytest.mark.parametrize("path", ["/nowhere/at/all", "/tmp", "/", "/proc", "/dev/shm"])
def test_what_cannot_be_brought_is_named_at_opening(path) -> None:
    """A folder that is not there, or where the sandbox has its own, is refused by its name."""
    with pytest.raises(SandboxRefused, match=f"(?:^|[ (]){path}(?:$| )"):
        Sandbox(readable=[path])


def test_the_root_is_built_where_nothing_is_read() -> None:
    """The first folder that holds nothing of what is to be read; where each holds something, that is said."""
    assert isolation.site(["/opt/python", "/srvx"]) == "/tmp"
    assert isolation.site(["/tmp/checkout"]) != "/tmp"
    with pytest.raises(OSError, match="/tmp"):
        isolation.site(list(isolation.SITES))


def test_a_program_begins_where_nothing_is_read() -> None:
    """A checkout below the sandbox's usual working folder gets it another one."""
    assert isolation.working_folder(["/tmp/works"]) == "/tmp/work"
    assert isolation.working_folder(["/tmp/work/checkout", "/tmp/work-1"]) == "/tmp/work-2"
