"""Processes that tests start: each leads a group of its own, and neither it nor what it started outlives the test.

The kernel ends it with the thread that started it (`runtime/processes/die_with_parent.py`), so a killed test run leaves nothing either.
"""

import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from claw_r1.claw.local.stack import answers
from claw_r1.runtime.processes import child
from claw_r1.runtime.processes.child import start

HEAVY_START_S = 300.0
"""For whatever imports torch or vLLM: on a busy machine two minutes were not enough. pytest's own limit is above it."""
GRACE_S = 10.0


def end(process: "subprocess.Popen[Any]", grace_s: float | None = None) -> int:
    """SIGTERM, after the grace SIGKILL to its whole group, whatever the leader did. Returns the leader's exit code."""
    return child.end(process, (signal.SIGTERM, GRACE_S if grace_s is None else grace_s))


def is_gone(process: psutil.Process) -> bool:
    """Returns whether it has ended; its parent may not have looked yet."""
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@contextmanager
def serving(
    argv: Sequence[str], health: str, log: Path, *, start_s: float = HEAVY_START_S, **options: Any
) -> Iterator[None]:  # Any: Popen's own options
    """A server while the block lasts, from its first healthy answer on. What it says goes to `log`.

    Fails with its last words: at once when the process ends, and after `start_s` when it never answers.
    """
    with log.open("wb") as output:
        process = start(argv, stdout=output, stderr=output, **options)
    try:
        deadline, healthy = time.monotonic() + start_s, answers(health)
        while not healthy():
            assert process.poll() is None, f"it ended with {process.returncode}: {log.read_text()[-3000:]}"
            assert time.monotonic() < deadline, f"no answer within {start_s:.0f} s: {log.read_text()[-3000:]}"
            time.sleep(0.2)
        yield
    finally:
        end(process)
