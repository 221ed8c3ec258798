"""Processes that tests start: each leads a group of its own, and neither it nor what it started outlives the test.

The kernel ends it with the thread that started it (`schemas/runtime/die_with_parent.py`), so a killed test run leaves nothing either.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from claw.local.stack import answers
from schemas.runtime.die_with_parent import leashed

HEAVY_START_S = 300.0
"""For whatever imports torch or vLLM: on a busy machine two minutes were not enough. pytest's own limit is above it."""
GRACE_S = 10.0


def start(argv: Sequence[str], **options: Any) -> "subprocess.Popen[Any]":  # Any: Popen's own options, text or bytes
    """`subprocess.Popen` of a process that `end` can end whole."""
    return subprocess.Popen(leashed(list(argv)), start_new_session=True, **options)


def end(process: "subprocess.Popen[Any]", grace_s: float | None = None) -> int:
    """SIGTERM, after the grace SIGKILL to its whole group, whatever the leader did. Returns the leader's exit code."""
    try:
        if process.poll() is None:
            process.terminate()
            process.wait(GRACE_S if grace_s is None else grace_s)
    except subprocess.TimeoutExpired:
        pass  # it does not listen: an engine that is still starting, or hangs
    finally:
        kill_group(process)
    return process.wait()


def kill_group(process: "subprocess.Popen[Any]") -> None:
    """SIGKILL to the process and to what is left of its group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # nothing is left


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
