"""What a manager leaves for other processes to read."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from claw_r1.claw.local.stack import ALERTS, Stack, prometheus_config
from claw_r1.claw.local.status_file import TARGETS_FILE, read_manager, read_status, write_status
from claw_r1.claw.local.up import run_down
from claw_r1.runtime.processes.component import ComponentState, State
from claw_r1.runtime.processes.process_identity import ProcessId
from tests.patience import until

STUBBORN = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(60)"


MANAGER = """
import sys, time
from pathlib import Path
from functools import partial
from claw_r1.claw.local.status_file import write_status
from claw_r1.runtime.processes.component import Component
from claw_r1.runtime.processes.processes import Processes
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


def test_prometheus_watches_who_is_at_work_and_misses_nobody_who_is_done(tmp_path: Path) -> None:
    """Each room with metrics has a port of its own; a drained worker and a trainer at its end are targets no more."""
    stack = Stack(run_dir=tmp_path, bootstrap="")
    rooms = [stack.streams(), stack.dashboard(1), stack.trainer(tmp_path / "trainer.yaml")]
    for room in rooms:
        assert f"_METRICS_PORT={room.metrics_port}" in "\n".join(f"{name}={value}" for name, value in room.env.items())
    assert stack.room("agents", "claw_r1.agentflow").metrics_port is None
    states = [ComponentState(room.name, 1, State.RUNNING, 0, None, room.metrics_port) for room in rooms[:2]]
    states.append(ComponentState("trainer", None, State.FINISHED, 0, 0, rooms[2].metrics_port))
    states.append(ComponentState("rollout-2", None, State.DEAD, 3, 1, 7))
    write_status(tmp_path, states)
    targets = json.loads((tmp_path / TARGETS_FILE).read_text())
    assert [target["labels"]["job"] for target in targets] == ["claw-streams", "claw-dashboard", "claw-rollout"]
    assert targets[0]["targets"] == [f"127.0.0.1:{rooms[0].metrics_port}"]
    assert read_status(tmp_path)[0].metrics_port == rooms[0].metrics_port
    assert prometheus_config()["rule_files"] == [str(ALERTS)]
