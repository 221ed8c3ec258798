"""Who is alive: a process is its pid and its start time, so a recycled pid is never taken for an old child. Linux only."""

import json
import os
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path

POLL_S = 0.02


@dataclass(frozen=True)
class ProcessId:
    """One process, for ever: `started_ticks` is its start in clock ticks since boot."""

    pid: int
    started_ticks: int

    @classmethod
    def of(cls, pid: int) -> "ProcessId | None":
        """The living process with this pid; None when there is none (a zombie is none).

        A zombie whose other threads are still dying is alive: until the last is gone, its ports and files are taken.
        """
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return None
        state, *fields = stat.rpartition(")")[2].split()  # the name before may hold spaces and brackets
        threads, started_ticks = int(fields[16]), int(fields[18])
        return None if state in "ZX" and threads <= 1 else cls(pid, started_ticks)

    @property
    def alive(self) -> bool:
        """Whether exactly this process still runs."""
        return ProcessId.of(self.pid) == self

    def signal(self, number: int) -> None:
        """Sends a signal if the process still runs."""
        if self.alive:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return  # it ended between the look and the call

    def stop(self, timeout_s: float) -> None:
        """SIGTERM, after `timeout_s` SIGKILL; returns when the process is gone."""
        self.signal(signal.SIGTERM)
        if not self.wait(timeout_s):
            self.signal(signal.SIGKILL)
            self.wait(timeout_s)

    def wait(self, timeout_s: float) -> bool:
        """Whether the process ended within `timeout_s`; it need not be a child of ours."""
        deadline = time.monotonic() + timeout_s
        while self.alive:
            if time.monotonic() > deadline:
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


def write_atomically(path: Path, text: str) -> None:
    """A reader sees the old text or the new one, never a part."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text)
    partial.replace(path)
