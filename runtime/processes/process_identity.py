"""The identity of a living process: a process is its pid and its start, so a recycled pid is never taken for an old
child. Linux only."""

import json
import os
import signal
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from claw_r1.runtime.files import write_atomically
from claw_r1.runtime.processes.child import POLL_S


@dataclass(frozen=True)
class ProcessId:
    """One process, for ever: `started_ticks` is its start in clock ticks since boot, which no change of the
    clock moves."""

    pid: int
    started_ticks: int

    @classmethod
    def of(cls, pid: int) -> "ProcessId | None":
        """The living process with this pid; None when there is none (a zombie is none).

        A zombie whose other threads are still dying is alive: until the last is gone, its ports and files are taken.
        """
        try:
            process = psutil.Process(pid)
            if process.status() in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD} and process.num_threads() <= 1:
                return None
            return cls(pid, _started_ticks(pid))
        except (psutil.NoSuchProcess, OSError):
            return None

    @property
    def alive(self) -> bool:
        """Exactly this process still runs."""
        return ProcessId.of(self.pid) == self

    def signal(self, number: int) -> None:
        """Sends a signal if the process still runs."""
        if self.alive:
            with suppress(ProcessLookupError):  # it ended between the look and the call
                os.kill(self.pid, number)

    def stop(self, timeout_s: float) -> None:
        """SIGTERM, after `timeout_s` SIGKILL; returns when the process is gone."""
        self.signal(signal.SIGTERM)
        if not self.wait(timeout_s):
            self.signal(signal.SIGKILL)
            self.wait(timeout_s)

    def wait(self, timeout_s: float) -> bool:
        """Waits, and returns whether the process ended within `timeout_s`; it need not be a child of ours."""
        deadline_s = time.monotonic() + timeout_s
        while self.alive:
            if time.monotonic() > deadline_s:
                return False
            time.sleep(POLL_S)
        return True

    def save(self, path: Path) -> None:
        """Writes the identity atomically."""
        write_atomically(path, json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> "ProcessId | None":
        """The process saved in `path`, if it still runs."""
        try:
            saved = cls(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            return None
        return saved if saved.alive else None


def _started_ticks(pid: int) -> int:
    """Field 22 of proc(5)'s stat. psutil gives a time of day instead, and what it counts from moves when the clock is set."""
    behind_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    return int(behind_name.split()[19])
