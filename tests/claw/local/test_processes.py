"""The process manager, on small real children."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from claw.errors import CannotRun, ComponentDied
from claw.local.processes import (
    Component,
    GiveUp,
    Processes,
    Restart,
    RestartBudget,
    State,
    read_status,
    restart_or_give_up,
)
from schemas.runtime.identity import ProcessId

FOREVER = "import time\nwhile True: time.sleep(60)"
STUBBORN = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready', flush=True)\n{FOREVER}"
QUICK = RestartBudget(restarts_max=2, delay_s=0.01)


def child(tmp_path: Path, name: str, code: str, **more: object) -> Component:
    settings = {"budget": QUICK, **more}
    return Component(name, (sys.executable, "-S", "-c", code), tmp_path / f"{name}.log", **settings)  # type: ignore[arg-type]  # a test's shorthand


def eventually(holds: Callable[[], bool], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.01)


def test_a_death_within_the_budget_is_answered_by_a_restart_that_waits_longer_each_time() -> None:
    """Delays double up to a ceiling while deaths are within the budget."""
    budget = RestartBudget(restarts_max=3, window_s=100, delay_s=1, delay_max_s=3)
    decisions = [restart_or_give_up([10.0] * deaths, 10.0, budget) for deaths in (1, 2, 3)]
    assert decisions == [Restart(1), Restart(2), Restart(3)]


def test_one_death_more_than_the_budget_is_the_end_and_old_deaths_are_forgiven() -> None:
    """Only deaths within the window count."""
    budget = RestartBudget(restarts_max=2, window_s=60)
    assert isinstance(restart_or_give_up([0, 1, 2], 2, budget), GiveUp)
    assert isinstance(restart_or_give_up([0, 1, 100], 100, budget), Restart)


def test_a_process_is_alive_until_its_last_thread_is_gone() -> None:
    """A killed broker holds its port until then: whoever took the zombie for dead gave the next broker another port."""
    leaves = "import ctypes, threading, time\nthreading.Thread(target=time.sleep, args=(10,)).start()\n"
    leaves += "ctypes.CDLL(None).pthread_exit(None)"
    with subprocess.Popen([sys.executable, "-S", "-c", leaves]) as process:
        stat = Path(f"/proc/{process.pid}/stat")
        eventually(lambda: ") Z " in stat.read_text())
        here = ProcessId.of(process.pid)
        assert here is not None
        assert not here.wait(0)
        here.signal(signal.SIGKILL)
        assert here.wait(10)


def test_a_killed_component_is_restarted_with_a_new_pid(tmp_path: Path) -> None:
    """kill -9 of a child costs one restart and nothing else."""
    with Processes(tmp_path) as processes:
        processes.start(child(tmp_path, "gateway", FOREVER))
        processes.wait_ready("gateway", 10)
        before = processes.states()[0]
        assert before.pid
        os.kill(before.pid, signal.SIGKILL)
        eventually(lambda: processes.poll()[0].restarts == 1 and processes.states()[0].state is State.RUNNING)
        after = processes.states()[0]
    assert after.pid not in {None, before.pid}
    assert after.exit_code == -signal.SIGKILL


def test_a_component_that_keeps_dying_ends_the_stack_with_its_name(tmp_path: Path) -> None:
    """When the budget is spent the error names the component, how it died and where its log is."""
    with Processes(tmp_path) as processes:
        processes.start(child(tmp_path, "streams", "raise SystemExit(3)"))
        with pytest.raises(ComponentDied, match=r"streams died with exit code 3.*streams\.log"):
            processes.wait_finished("streams", 20)
    state = read_status(tmp_path)[0]
    assert (state.state, state.restarts, state.exit_code) == (State.DEAD, 2, 3)


def test_work_that_ends_well_is_finished_not_dead(tmp_path: Path) -> None:
    """Exit code 0 of a component that may finish is no death."""
    with Processes(tmp_path) as processes:
        processes.start(child(tmp_path, "trainer", "pass", may_finish=True))
        processes.wait_finished("trainer", 10)
        assert processes.states()[0].restarts == 0


def test_what_never_gets_ready_is_a_death(tmp_path: Path) -> None:
    """A component that hangs while starting spends its budget like one that exits."""
    hanging = child(tmp_path, "rollout", FOREVER, ready=lambda: False, ready_timeout_s=0.05)
    with Processes(tmp_path) as processes:
        processes.start(hanging)
        with pytest.raises(ComponentDied, match="rollout"):
            processes.wait_ready("rollout", 20)


def test_stop_ends_even_who_ignores_sigterm_and_all_descendants_within_its_time(tmp_path: Path) -> None:
    """After `stop` no process of the stack is left, and its time limit held."""
    log_path = tmp_path / "parent.log"
    parent = f"import subprocess, sys\np = subprocess.Popen([sys.executable, '-S', '-c', {STUBBORN!r}])\nprint(p.pid, flush=True)\n{FOREVER}"
    processes = Processes(tmp_path)
    processes.start(child(tmp_path, "parent", parent))
    processes.start(child(tmp_path, "stubborn", STUBBORN))
    stubborn_log = tmp_path / "stubborn.log"
    eventually(lambda: "ready" in stubborn_log.read_text() and "ready" in log_path.read_text())
    pids = [state.pid for state in processes.states()] + [int(log_path.read_text().split()[0])]
    started = time.monotonic()
    processes.stop(timeout_s=3)
    assert time.monotonic() - started < 3.5
    eventually(lambda: all(ProcessId.of(pid) is None for pid in pids if pid))
    assert [state.state for state in read_status(tmp_path)] == [State.STOPPED] * 2


def test_components_stop_in_reverse_order_of_their_start(tmp_path: Path) -> None:
    """Who was started last is asked to stop first and is gone before the next is asked."""
    order = tmp_path / "order"
    code = "import signal, sys, time\ndef stop(*_):\n    open({!r}, 'a').write({!r}); sys.exit(0)\nsignal.signal(signal.SIGTERM, stop)\nprint('ready', flush=True)\n{}"
    processes = Processes(tmp_path)
    for name in "abc":
        processes.start(child(tmp_path, name, code.format(str(order), name, FOREVER)))
    eventually(lambda: all("ready" in (tmp_path / f"{name}.log").read_text() for name in "abc"))
    processes.stop()
    assert order.read_text() == "cba"


MANAGER = """
import sys, time
from pathlib import Path
from claw.local.processes import Component, Processes
tmp = Path(sys.argv[1])
processes = Processes(tmp)
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
            eventually(lambda: [s.state for s in read_status(tmp_path)] == [State.RUNNING])
            pid = read_status(tmp_path)[0].pid
            assert pid
        finally:
            manager.kill()  # leaving the block waits for it
    eventually(lambda: ProcessId.of(pid) is None)
    assert read_status(tmp_path)[0].state is State.DEAD


def test_a_name_runs_once(tmp_path: Path) -> None:
    """Starting a running component again is refused and says its pid."""
    with Processes(tmp_path) as processes:
        processes.start(child(tmp_path, "gateway", FOREVER))
        with pytest.raises(CannotRun, match="runs already"):
            processes.start(child(tmp_path, "gateway", FOREVER))
