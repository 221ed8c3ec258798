"""The processes that a program runs, and the state of each."""

import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from os import environ
from pathlib import Path

from claw_r1.runtime.processes.child import start
from claw_r1.runtime.processes.restarts import RestartBudget


class State(StrEnum):
    """The state of a component."""

    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    FINISHED = "finished"
    DEAD = "dead"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Component:
    """The command of a component. `argv` is a command line without a shell; `env` is added to ours."""

    name: str
    argv: tuple[str, ...]
    log_path: Path | None = None
    """The file to which its output is appended; None: it goes where ours goes."""
    env: Mapping[str, str] = field(default_factory=dict)
    budget: RestartBudget = field(default_factory=RestartBudget)
    ready: Callable[[], bool] | None = None
    """Called at each poll, so it must answer at once; without it a component that was started is ready."""
    ready_timeout_s: float = 120.0
    """After a start or a restart; not ready by then counts as a death."""
    may_finish: bool = False
    """Exit code 0 is the end of its work (a trainer, a runner) rather than a death."""
    finished_before_code: int | None = None
    """The exit code by which it says that its work was done before it began: no death, and no restart."""
    death_signal: int = signal.SIGKILL
    """The signal that it gets from the kernel when its manager is killed. Everything here survives SIGKILL; not all
    heed SIGTERM."""
    pass_fds: tuple[int, ...] = ()
    """Open files of ours that it inherits."""
    metrics_port: int | None = None
    """The port of its metrics, on loopback."""
    cannot_start_code: int | None = None
    """The exit code by which its first start says that no restart will help."""

    def spawn(self) -> "subprocess.Popen[bytes]":
        """A new process of this component."""
        if self.log_path:
            self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") if self.log_path else nullcontext() as output:
            return start(
                self.argv,
                death_signal=self.death_signal,
                env={**environ, **self.env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT if output else None,
                pass_fds=self.pass_fds,
            )


@dataclass(frozen=True)
class ComponentState:
    """One line of `claw status`."""

    component: str
    pid: int | None
    state: State
    restarts: int
    exit_code: int | None
    metrics_port: int | None = None
