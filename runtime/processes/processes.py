"""The components of one program: started, watched, restarted within a budget, stopped together, never left behind.

One owner calls `poll` at least once a second from the thread that started the children (the kernel ends them with that
thread, see `runtime/processes/die_with_parent.py`).
"""

import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from claw_r1.runtime.errors import ComponentDied, ProcessError, describe_exit
from claw_r1.runtime.processes import child as child_process
from claw_r1.runtime.processes.component import Component, ComponentState, State
from claw_r1.runtime.processes.restarts import Deaths

log = structlog.get_logger()

STOP_TIMEOUT_S = 10.0
KILL_RESERVE_S = 1.0
STAGGER_S = 1.0
ENDED = frozenset({State.FINISHED, State.DEAD})


@dataclass
class _Child:
    """A component and its present process; None when that was reaped."""

    component: Component
    deaths: Deaths
    process: "subprocess.Popen[bytes] | None" = None
    state: State = State.STARTING
    restarts: int = 0
    started_at_s: float = 0.0
    restart_at_s: float = 0.0
    exit_code: int | None = None

    @property
    def log_name(self) -> str:
        return str(self.component.log_path or "above")

    def describe(self) -> ComponentState:
        pid = self.process.pid if self.process is not None else None
        port = self.component.metrics_port
        return ComponentState(self.component.name, pid, self.state, self.restarts, self.exit_code, port)


class Processes:
    """The running components. `on_change` gets their states
    whenever one changed; `interrupt` may end a wait by what
    it raises. `excuse` is asked at each death: one counts
    against no budget while what they all need is away.

    Use it as a context manager.
    """

    def __init__(
        self,
        on_change: Callable[[list[ComponentState]], None] = lambda _: None,
        interrupt: Callable[[], None] = lambda: None,
        excuse: Callable[[], bool] = lambda: False,
    ) -> None:
        self._on_change = on_change
        self._interrupt = interrupt
        self._excuse = excuse
        self._children: dict[str, _Child] = {}
        self._reported: list[ComponentState] = []

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, component: Component) -> None:
        """Starts a component. Raises `ProcessError` when a component of this name runs."""
        previous = self._children.get(component.name)
        if previous is not None and previous.process is not None:
            if not child_process.has_ended(previous.process):
                raise ProcessError(f"{component.name} runs already (pid {previous.process.pid})")
            child_process.reap(previous.process)
        self._children.pop(component.name, None)  # started again by hand, it is the youngest: stopped first
        child = self._children[component.name] = _Child(component, Deaths(component.budget))
        self._spawn(child)
        self._report()

    def poll(self) -> list[ComponentState]:
        """Looks after every child once, without waiting. Raises `ComponentDied` when one spent its restart budget."""
        self._interrupt()
        try:
            for child in self._children.values():
                self._look_after(child)
        finally:
            self._report()
        return self.states()

    def wait_ready(self, name: str, timeout_s: float) -> None:
        """Polls until the component is running. Raises `ComponentDied`, or `ProcessError` after `timeout_s`."""
        self._wait(name, {State.RUNNING, State.FINISHED}, timeout_s, "is not ready")

    def wait_finished(self, name: str, timeout_s: float) -> None:
        """Polls until the component ended its work with exit code 0. Raises as `wait_ready`."""
        self._wait(name, {State.FINISHED}, timeout_s, "has not finished")

    def states(self) -> list[ComponentState]:
        """All components in the order of their start."""
        return [child.describe() for child in self._children.values()]

    def stop(self, timeout_s: float = STOP_TIMEOUT_S, stagger_s: float = STAGGER_S) -> None:
        """Ends every component with its descendants, within `timeout_s` in all.

        SIGTERM goes out in reverse order of start, to each when the one before has ended or `stagger_s` later.
        """
        self._stop(list(reversed(self._children.values())), timeout_s, stagger_s)

    def stop_one(self, name: str, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Ends one component; it is not restarted."""
        self._stop([self._children[name]], timeout_s, STAGGER_S)

    def _wait(self, name: str, states: set[State], timeout_s: float, complaint: str) -> None:
        child, deadline_s = self._children[name], time.monotonic() + timeout_s
        while child.state not in states:
            self.poll()
            if time.monotonic() > deadline_s:
                raise ProcessError(f"{name} {complaint} after {timeout_s:.0f} s; its log: {child.log_name}")
            time.sleep(child_process.POLL_S)

    def _spawn(self, child: _Child) -> None:
        child.process = child.component.spawn()
        child.state, child.started_at_s = State.STARTING, time.monotonic()
        log.info("component_started", component=child.component.name, pid=child.process.pid, restarts=child.restarts)

    def _look_after(self, child: _Child) -> None:
        if child.state is State.RESTARTING and time.monotonic() >= child.restart_at_s:
            child.restarts += 1
            self._spawn(child)
        if child.state not in {State.STARTING, State.RUNNING} or child.process is None:
            return
        if child_process.has_ended(child.process):
            exit_code, child.process = child_process.reap(child.process), None
            self._on_exit(child, exit_code)
        elif child.state is State.STARTING:
            self._check_ready(child, child.process.pid)

    def _check_ready(self, child: _Child, pid: int) -> None:
        component = child.component
        if component.ready is None or component.ready():
            child.state = State.RUNNING
        elif time.monotonic() - child.started_at_s > component.ready_timeout_s:
            log.warning("component_not_ready", component=component.name, after_s=component.ready_timeout_s)
            child_process.kill_group(pid)  # a death like any other: the next look answers it

    def _on_exit(self, child: _Child, exit_code: int) -> None:
        component, child.exit_code = child.component, exit_code
        if (exit_code == 0 and component.may_finish) or exit_code == component.finished_before_code:
            child.state = State.FINISHED
            if exit_code:
                log.warning("component_was_over", component=component.name, log=child.log_name)
            return
        log.warning("component_died", component=component.name, how=describe_exit(exit_code), log=child.log_name)
        if self._excuse():
            delay_s: float | None = component.budget.delay_max_s
            log.warning("component_death_excused", component=component.name, restart_after_s=delay_s)
        else:
            hopeless = exit_code == component.cannot_start_code and not child.restarts
            delay_s = None if hopeless else child.deaths.restart_delay_s(time.monotonic())
        if delay_s is None:
            child.state = State.DEAD
            raise ComponentDied(component.name, exit_code, child.log_name)
        child.state, child.restart_at_s = State.RESTARTING, time.monotonic() + delay_s

    def _stop(self, children: Iterable[_Child], timeout_s: float, stagger_s: float) -> None:
        """Stops the children, so that a slow one does not take the others' time."""
        deadline_s = time.monotonic() + timeout_s - KILL_RESERVE_S
        unfinished = [child for child in children if child.state not in ENDED]
        for child in unfinished:
            if child.process is not None:
                child_process.signalled(child.process, signal.SIGTERM, min(deadline_s - time.monotonic(), stagger_s))
        for child in unfinished:
            self._make_sure(child, deadline_s)
        self._report()

    def _make_sure(self, child: _Child, deadline_s: float) -> None:
        if child.process is not None:
            if not child_process.wait(child.process, deadline_s - time.monotonic()):
                log.warning("component_killed", component=child.component.name, why="it did not stop in time")
            child.exit_code, child.process = child_process.reap(child.process), None
        child.state = State.STOPPED

    def _report(self) -> None:
        if (states := self.states()) != self._reported:
            self._on_change(states)
            self._reported = states
