"""Components started, watched and stopped together, on small real children."""

import os
import signal
import sys
from pathlib import Path

import pytest

from claw_r1.runtime.errors import ComponentDied, ProcessError
from claw_r1.runtime.processes.component import Component, State
from claw_r1.runtime.processes.process_identity import ProcessId
from claw_r1.runtime.processes.processes import Processes
from claw_r1.runtime.processes.restarts import RestartBudget
from tests.patience import until

pytestmark = pytest.mark.process

FOREVER = "import time\nwhile True: time.sleep(60)"
STUBBORN = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready', flush=True)\n{FOREVER}"
QUICK = RestartBudget(restarts_max=2, delay_s=0.01)


def child(tmp_path: Path, name: str, code: str, **more: object) -> Component:
    settings = {"budget": QUICK, **more}
    return Component(name, (sys.executable, "-S", "-c", code), tmp_path / f"{name}.log", **settings)  # type: ignore[arg-type]  # a test's shorthand


def test_a_killed_component_is_restarted_with_a_new_pid(tmp_path: Path) -> None:
    """kill -9 of a child costs one restart and nothing else."""
    with Processes() as processes:
        processes.start(child(tmp_path, "gateway", FOREVER))
        processes.wait_ready("gateway", 10)
        before = processes.states()[0]
        assert before.pid
        os.kill(before.pid, signal.SIGKILL)
        until(lambda: processes.poll()[0].restarts == 1 and processes.states()[0].state is State.RUNNING)
        after = processes.states()[0]
    assert after.pid not in {None, before.pid}
    assert after.exit_code == -signal.SIGKILL


def test_a_component_that_keeps_dying_ends_the_stack_with_its_name(tmp_path: Path) -> None:
    """When the budget is spent the error names the component, how it died and where its log is."""
    with Processes() as processes:
        processes.start(child(tmp_path, "streams", "raise SystemExit(3)"))
        with pytest.raises(ComponentDied, match=r"streams died with exit code 3.*streams\.log"):
            processes.wait_finished("streams", 20)
    (state,) = processes.states()
    assert (state.state, state.restarts, state.exit_code) == (State.DEAD, 2, 3)


def test_work_that_ends_well_is_finished_not_dead(tmp_path: Path) -> None:
    """Exit code 0 of a component that may finish is no death."""
    with Processes() as processes:
        processes.start(child(tmp_path, "trainer", "pass", may_finish=True))
        processes.wait_finished("trainer", 10)
        assert processes.states()[0].restarts == 0


def test_work_that_was_over_before_is_finished_too(tmp_path: Path) -> None:
    """The code that says so is no death, also after a kill; any other is."""
    first = tmp_path / "first"
    killed_once = f"import os, pathlib; p = pathlib.Path({str(first)!r}); p.exists() or (p.touch(), os.kill(os.getpid(), 9)); os._exit(3)"
    with Processes() as processes:
        processes.start(child(tmp_path, "trainer", killed_once, may_finish=True, finished_before_code=3))
        processes.wait_finished("trainer", 20)
        (state,) = processes.states()
        assert (state.restarts, state.exit_code) == (1, 3)


def test_what_never_gets_ready_is_a_death(tmp_path: Path) -> None:
    """A component that hangs while starting spends its budget like one that exits."""
    hanging = child(tmp_path, "rollout", FOREVER, ready=lambda: False, ready_timeout_s=0.05)
    with Processes() as processes:
        processes.start(hanging)
        with pytest.raises(ComponentDied, match="rollout"):
            processes.wait_ready("rollout", 20)


def test_stop_ends_even_who_ignores_sigterm_and_all_descendants(tmp_path: Path) -> None:
    """After `stop` no process is left."""
    log_path = tmp_path / "parent.log"
    parent = f"import subprocess, sys\np = subprocess.Popen([sys.executable, '-S', '-c', {STUBBORN!r}])\nprint(p.pid, flush=True)\n{FOREVER}"
    processes = Processes()
    processes.start(child(tmp_path, "parent", parent))
    processes.start(child(tmp_path, "stubborn", STUBBORN))
    stubborn_log = tmp_path / "stubborn.log"
    until(lambda: "ready" in stubborn_log.read_text() and "ready" in log_path.read_text())
    pids = [state.pid for state in processes.states()] + [int(log_path.read_text().split()[0])]
    processes.stop(timeout_s=1.5)
    until(lambda: all(ProcessId.of(pid) is None for pid in pids if pid))
    assert [state.state for state in processes.states()] == [State.STOPPED] * 2


def test_components_stop_in_reverse_order_of_their_start(tmp_path: Path) -> None:
    """Who was started last is asked to stop first and is gone before the next is asked."""
    order = tmp_path / "order"
    code = "import signal, sys, time\ndef stop(*_):\n    open({!r}, 'a').write({!r}); sys.exit(0)\nsignal.signal(signal.SIGTERM, stop)\nprint('ready', flush=True)\n{}"
    processes = Processes()
    for name in "abc":
        processes.start(child(tmp_path, name, code.format(str(order), name, FOREVER)))
    until(lambda: all("ready" in (tmp_path / f"{name}.log").read_text() for name in "abc"))
    processes.stop()
    assert order.read_text() == "cba"


def test_a_name_runs_once(tmp_path: Path) -> None:
    """Starting a running component again is refused and says its pid."""
    with Processes() as processes:
        processes.start(child(tmp_path, "gateway", FOREVER))
        with pytest.raises(ProcessError, match="runs already"):
            processes.start(child(tmp_path, "gateway", FOREVER))


def test_a_first_start_that_cannot_work_is_not_repeated(tmp_path: Path) -> None:
    """The exit code that says so ends the program at once, whatever the budget."""
    with Processes() as processes:
        processes.start(child(tmp_path, "gateway", "raise SystemExit(2)", cannot_start_code=2))
        with pytest.raises(ComponentDied) as died:
            processes.wait_finished("gateway", 20)
        assert (died.value.exit_code, processes.states()[0].restarts) == (2, 0)


def test_a_later_start_that_cannot_work_is_repeated(tmp_path: Path) -> None:
    """Who ran once may start again later: what it needs can come back."""
    code = f"import pathlib, sys\nmark = pathlib.Path({str(tmp_path / 'ran')!r})\nran = mark.exists()\nmark.touch()\nsys.exit(2 if ran else 1)"
    with Processes() as processes:
        processes.start(child(tmp_path, "gateway", code, cannot_start_code=2))
        with pytest.raises(ComponentDied):
            processes.wait_finished("gateway", 20)
        assert processes.states()[0].restarts == QUICK.restarts_max


def test_no_death_counts_while_what_all_need_is_away(tmp_path: Path) -> None:
    """Those before it and those after it count as ever, and a first start that cannot work is repeated meanwhile, too."""
    looks = iter([False, *[True] * 3])
    impatient = RestartBudget(restarts_max=1, delay_s=0.01, delay_max_s=0.01)
    with Processes(excuse=lambda: next(looks, False)) as processes:
        processes.start(child(tmp_path, "streams", "raise SystemExit(2)", budget=impatient))
        with pytest.raises(ComponentDied):
            processes.wait_finished("streams", 20)
        assert processes.states()[0].restarts == 4
    with Processes(excuse=lambda: not processes.states()[0].restarts) as processes:
        processes.start(child(tmp_path, "gateway", "raise SystemExit(2)", budget=impatient, cannot_start_code=2))
        with pytest.raises(ComponentDied):
            processes.wait_finished("gateway", 20)
        assert processes.states()[0].restarts == 2


def test_a_component_that_waits_for_its_restart_has_no_process(tmp_path: Path) -> None:
    """Its pid may be another's by now: it is neither shown nor signalled."""
    slow = RestartBudget(delay_s=1000, delay_max_s=1000)
    processes = Processes()
    processes.start(child(tmp_path, "trainer", "raise SystemExit(1)", budget=slow))
    until(lambda: processes.poll()[0].state is State.RESTARTING)
    assert processes.states()[0].pid is None
    processes.stop()
    assert (processes.states()[0].state, processes.states()[0].exit_code) == (State.STOPPED, 1)


def test_who_is_started_again_by_hand_leaves_no_descendant(tmp_path: Path) -> None:
    """A component that ended, unseen by any poll, is ended whole before its successor starts."""
    log_path = tmp_path / "parent.log"
    leaves = (
        f"import subprocess, sys\nprint(subprocess.Popen([sys.executable, '-S', '-c', {FOREVER!r}]).pid, flush=True)"
    )
    with Processes() as processes:
        processes.start(child(tmp_path, "parent", leaves))
        until(lambda: ProcessId.of(processes.states()[0].pid or 0) is None and log_path.read_text() != "")
        orphan = ProcessId.of(int(log_path.read_text()))
        assert orphan is not None
        processes.start(child(tmp_path, "parent", FOREVER))
        assert orphan.wait(10)
