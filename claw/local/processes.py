"""The processes of the local stack: started, watched, restarted within a budget, stopped together, never left behind.

One owner calls `poll` at least once a second from the thread that started the children (the kernel ends them with that
thread, see `schemas/runtime/die_with_parent.py`). Whether a death is answered by a restart is decided by `restart_or_give_up`, which is pure.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

import structlog

from claw.errors import CannotRun, ComponentDied, describe_exit
from schemas.runtime.die_with_parent import leashed
from schemas.runtime.identity import POLL_S, ProcessId, write_atomically

log = structlog.get_logger()

STOP_TIMEOUT_S = 10.0
KILL_RESERVE_S = 1.0
STAGGER_S = 1.0
STATUS_FILE = "status.json"


class State(StrEnum):
    """Where a component is in its life."""

    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    FINISHED = "finished"
    DEAD = "dead"
    STOPPED = "stopped"


ENDED = frozenset({State.FINISHED, State.DEAD})


@dataclass(frozen=True)
class RestartBudget:
    """At most `restarts_max` restarts within any `window_s`; the n-th waits `delay_s` * 2**n before it."""

    restarts_max: int = 3
    window_s: float = 120.0
    delay_s: float = 0.2
    delay_max_s: float = 5.0


@dataclass(frozen=True)
class Component:
    """What to run. `argv` is a command line without a shell; `env` is added to ours."""

    name: str
    argv: tuple[str, ...]
    log_path: Path
    env: Mapping[str, str] = field(default_factory=dict)
    budget: RestartBudget = RestartBudget()
    ready: Callable[[], bool] | None = None
    """Asked at each poll, so it must answer at once; without it a component that was started is ready."""
    ready_timeout_s: float = 120.0
    """After a start or a restart; not ready by then counts as a death."""
    may_finish: bool = False
    """Whether exit code 0 is the end of its work (a trainer, a runner) rather than a death."""
    death_signal: int = signal.SIGKILL
    """What it gets from the kernel when its manager is killed. Everything here survives SIGKILL; not all heed SIGTERM."""


@dataclass(frozen=True)
class ComponentState:
    """One line of `claw status`."""

    component: str
    pid: int | None
    state: State
    restarts: int
    exit_code: int | None


@dataclass(frozen=True)
class Restart:
    """Start again after `delay_s`."""

    delay_s: float


class GiveUp:
    """The budget is spent."""


def restart_or_give_up(deaths: Sequence[float], now: float, budget: RestartBudget) -> Restart | GiveUp:
    """What to do about the last of `deaths` (times in seconds, same clock as `now`). Old deaths are forgiven."""
    recent = sum(now - death <= budget.window_s for death in deaths)
    if recent > budget.restarts_max:
        return GiveUp()
    return Restart(min(budget.delay_s * 2 ** max(0, recent - 1), budget.delay_max_s))


@dataclass
class _Child:
    """A component and its present process."""

    component: Component
    process: subprocess.Popen[bytes] | None = None
    state: State = State.STARTING
    deaths: list[float] = field(default_factory=list)
    restarts: int = 0
    started_at: float = 0.0
    restart_at: float = 0.0
    exit_code: int | None = None

    def describe(self) -> ComponentState:
        pid = self.process.pid if self.process is not None and self.process.returncode is None else None
        return ComponentState(self.component.name, pid, self.state, self.restarts, self.exit_code)


class Processes:
    """The running components of one stack; `run_dir/status.json` always tells their states. Use it as a context manager."""

    def __init__(self, run_dir: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._run_dir = run_dir
        self._clock = clock
        self._children: dict[str, _Child] = {}
        self._written: list[ComponentState] = []

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, component: Component) -> None:
        """Starts a component. Raises `CannotRun` when a component of this name runs already."""
        old = self._children.get(component.name)
        if old is not None and old.process is not None and old.process.poll() is None:
            raise CannotRun(f"{component.name} runs already (pid {old.process.pid})")
        self._children.pop(component.name, None)  # started again by hand, it is the youngest: stopped first
        child = self._children[component.name] = _Child(component)
        self._spawn(child)
        self._write_status()

    def poll(self) -> list[ComponentState]:
        """Looks after every child once, without waiting. Raises `ComponentDied` when one spent its restart budget."""
        try:
            for child in self._children.values():
                self._look_after(child)
        finally:
            self._write_status()
        return self.states()

    def wait_ready(self, name: str, timeout_s: float) -> None:
        """Polls until the component is running. Raises `ComponentDied`, or `CannotRun` after `timeout_s`."""
        child = self._children[name]
        self._wait(
            lambda: child.state in {State.RUNNING, State.FINISHED},
            timeout_s,
            f"{name} is not ready",
            child.component.log_path,
        )

    def wait_finished(self, name: str, timeout_s: float) -> None:
        """Polls until the component ended its work with exit code 0. Raises as `wait_ready`."""
        child = self._children[name]
        self._wait(
            lambda: child.state is State.FINISHED, timeout_s, f"{name} has not finished", child.component.log_path
        )

    def states(self) -> list[ComponentState]:
        """All components in the order of their start."""
        return [child.describe() for child in self._children.values()]

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Ends every component in reverse order of start, each with its descendants, within `timeout_s` in all."""
        self._stop_children(list(reversed(self._children.values())), timeout_s)

    def stop_one(self, name: str, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Ends one component; it is not restarted."""
        self._stop_children([self._children[name]], timeout_s)

    def _wait(self, done: Callable[[], bool], timeout_s: float, complaint: str, log_path: Path) -> None:
        deadline = self._clock() + timeout_s
        while not done():
            self.poll()
            if self._clock() > deadline:
                raise CannotRun(f"{complaint} after {timeout_s:.0f} s; its log: {log_path}")
            time.sleep(POLL_S)

    def _spawn(self, child: _Child) -> None:
        component = child.component
        component.log_path.parent.mkdir(parents=True, exist_ok=True)
        with component.log_path.open("ab") as output:
            child.process = subprocess.Popen(
                leashed(list(component.argv), component.death_signal),
                env={**os.environ, **component.env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # its process group is its descendants; the terminal's Ctrl-C is for the manager
            )
        child.state, child.started_at = State.STARTING, self._clock()
        log.info("component_started", component=component.name, pid=child.process.pid, restarts=child.restarts)

    def _look_after(self, child: _Child) -> None:
        if child.state is State.RESTARTING and self._clock() >= child.restart_at:
            child.restarts += 1
            self._spawn(child)
        if child.state not in {State.STARTING, State.RUNNING} or child.process is None:
            return
        exit_code = child.process.poll()
        if exit_code is not None:
            self._answer_death(child, child.process, exit_code)
        elif child.state is State.STARTING:
            self._ask_ready(child, child.process)

    def _ask_ready(self, child: _Child, process: subprocess.Popen[bytes]) -> None:
        component = child.component
        if component.ready is None or component.ready():
            child.state = State.RUNNING
        elif self._clock() - child.started_at > component.ready_timeout_s:
            log.warning("component_not_ready", component=component.name, after_s=component.ready_timeout_s)
            _end_group(process)  # a death like any other: the next look answers it

    def _answer_death(self, child: _Child, process: subprocess.Popen[bytes], exit_code: int) -> None:
        name = child.component.name
        child.exit_code = exit_code
        _end_group(process)
        if exit_code == 0 and child.component.may_finish:
            child.state = State.FINISHED
            return
        now = self._clock()
        child.deaths.append(now)
        log.warning("component_died", component=name, how=describe_exit(exit_code), log=str(child.component.log_path))
        decision = restart_or_give_up(child.deaths, now, child.component.budget)
        if isinstance(decision, GiveUp):
            child.state = State.DEAD
            raise ComponentDied(name, exit_code, str(child.component.log_path))
        child.state, child.restart_at = State.RESTARTING, now + decision.delay_s

    def _stop_children(self, children: list[_Child], timeout_s: float) -> None:
        """Asks them in order, each a moment after the one before; who is slow does not take the others' time."""
        deadline = self._clock() + timeout_s - KILL_RESERVE_S
        for child in children:
            if child.process is not None and child.process.poll() is None:
                child.process.terminate()
                self._ended(child.process, min(deadline, self._clock() + STAGGER_S))
        for child in children:
            if child.state not in ENDED:  # what is left of those was ended at once; their pids may be others' by now
                self._make_sure(child, deadline)
        self._write_status()

    def _ended(self, process: subprocess.Popen[bytes], deadline: float) -> bool:
        try:
            process.wait(max(0.0, deadline - self._clock()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def _make_sure(self, child: _Child, deadline: float) -> None:
        if child.process is not None:
            if not self._ended(child.process, deadline):
                log.warning("component_killed", component=child.component.name, why="it did not stop in time")
            _end_group(child.process)
            child.exit_code = child.process.wait()
        child.state = State.STOPPED

    def _write_status(self) -> None:
        states = self.states()
        if states == self._written:
            return
        self._run_dir.mkdir(parents=True, exist_ok=True)
        manager = ProcessId.of(os.getpid())
        status = {"manager": asdict(manager) if manager else None, "components": [asdict(state) for state in states]}
        write_atomically(self._run_dir / STATUS_FILE, json.dumps(status))
        self._written = states


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Kills what is left of a child's process group: grandchildren that outlived it, or itself when it would not stop."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # nothing is left, the usual case


def read_status(run_dir: Path) -> list[ComponentState]:
    """The states that a manager wrote, for another process; empty when no manager ever ran there.

    When the manager is gone its components are, too (`schemas/runtime/die_with_parent.py`), whatever the file says.
    """
    try:
        status = json.loads((run_dir / STATUS_FILE).read_text())
    except (OSError, ValueError):
        return []
    states = [ComponentState(**{**entry, "state": State(entry["state"])}) for entry in status["components"]]
    if status["manager"] and ProcessId(**status["manager"]).alive:
        return states
    ended = {State.FINISHED, State.DEAD, State.STOPPED}
    return [
        s if s.state in ended else ComponentState(s.component, None, State.DEAD, s.restarts, s.exit_code)
        for s in states
    ]
