"""What a manager leaves for other processes to read."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from claw_r1.claw.local.status_file import read_manager, read_status
from claw_r1.claw.local.up import run_down
from claw_r1.runtime.component import State
from claw_r1.runtime.identity import ProcessId
from tests.patience import until

STUBBORN = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(60)"


MANAGER = """
import sys, time
from pathlib import Path
from functools import partial
from claw_r1.claw.local.status_file import write_status
from claw_r1.runtime.component import Component
from claw_r1.runtime.processes import Processes
tmp = Path(sys.argv[1])
processes = Processes(partial(write_status, tmp))
processes.start(Component("stubborn", (sys.executable, "-S", "-c", sys.argv[2]), tmp / "stubborn.log"))
while True:
    processes.poll()
    time.sleep(0.05)
"""


def test_children_die_when_their_manager_is_killed(tmp_path: Path) -> None:
    """kill -9 of the manager leaves nothing behind, and the status file is not believed any more."""
    with subprocess.Popen(
        [sys.executable, "-c", MANAGER, str(tmp_path), STUBBORN], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as manager:
        try:
            until(lambda: [s.state for s in read_status(tmp_path)] == [State.RUNNING])
            pid = read_status(tmp_path)[0].pid
            assert pid
        finally:
            manager.kill()  # leaving the block waits for it
    until(lambda: ProcessId.of(pid) is None)
    assert read_status(tmp_path)[0].state is State.DEAD


def test_where_no_manager_ran_there_is_no_status(tmp_path: Path) -> None:
    """No file, or half of one, is no component."""
    assert read_status(tmp_path) == []
    (tmp_path / "status.json").write_text('{"manager"')
    assert read_status(tmp_path) == []


ALONE = "import sys, time; from pathlib import Path; from claw_r1.claw.local.status_file import write_status\n"
ALONE += "write_status(Path(sys.argv[1]), []); time.sleep(60)"


def test_down_ends_a_manager_that_has_started_nothing_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stack whose broker does not come up can be stopped; once its manager is gone, there is nothing to stop."""
    monkeypatch.setenv("CLAW_HOME", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", ALONE, str(tmp_path / "up")]) as manager:
        until(lambda: read_manager(tmp_path / "up") is not None)
        assert run_down() == 0
    assert manager.returncode == -signal.SIGTERM
    assert read_manager(tmp_path / "up") is None
    assert run_down() == 1
