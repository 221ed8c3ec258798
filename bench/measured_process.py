"""Child processes whose CPU time and memory can be read from outside, exactly (nanoseconds, all threads)."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

START_TIMEOUT_S = 60.0


class Measured:
    """A running process."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process, self._proc = process, Path("/proc") / str(process.pid)

    def cpu_s(self) -> float:
        """CPU time of all its threads so far; a thread that ended takes its share with it."""
        spent_ns = 0
        for stat in self._proc.glob("task/*/schedstat"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                spent_ns += int(stat.read_text().split()[0])
        return spent_ns / 1e9

    def rss_bytes(self) -> int:
        """Resident memory."""
        return int((self._proc / "statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@contextlib.contextmanager
def running(module: str, *argv: str, ready: str, log: Path, **environment: str) -> Iterator[Measured]:
    """`python -m module` until the block ends. Raises RuntimeError when `ready` is not said within a minute."""
    with log.open("wb") as output:
        command = [sys.executable, "-m", module, *argv]
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **environment})
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while ready not in log.read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{module} did not start: {log.read_text()[-2000:]}")
            time.sleep(0.02)
        yield Measured(process)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
