"""The end of a child, waited for without looking again and again."""

import asyncio
import gc
import os
import signal
import sys
from pathlib import Path

import pytest

from claw_r1.runtime.processes import child
from tests import children
from tests.patience import PATIENCE_S

SLEEPING = [sys.executable, "-c", "import time; time.sleep(600)"]


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def without_pidfd(_: int) -> int:
    raise OSError("an older kernel")


@pytest.mark.parametrize("older_kernel", [False, True])
async def test_the_end_of_a_child_is_noticed_and_it_is_not_reaped(
    monkeypatch: pytest.MonkeyPatch, *, older_kernel: bool
) -> None:
    """Its code is still there for who reaps it, and who asks again is answered; no descriptor is left."""
    if older_kernel:
        monkeypatch.setattr(os, "pidfd_open", without_pidfd)
    process = children.start(SLEEPING)
    gc.collect()  # what earlier tests left may be closed at any moment
    before = descriptors()
    waiting = asyncio.create_task(child.ended(process))
    await asyncio.sleep(0)
    assert not waiting.done()
    os.kill(process.pid, signal.SIGKILL)
    await asyncio.wait_for(waiting, PATIENCE_S)
    await child.ended(process)
    assert child.reap(process) == -signal.SIGKILL
    await child.ended(process)
    assert descriptors() <= before


async def test_who_no_longer_waits_leaves_nothing() -> None:
    """A wait that is cancelled gives its descriptor back."""
    process = children.start(SLEEPING)
    gc.collect()  # what earlier tests left may be closed at any moment
    before = descriptors()
    waiting = asyncio.create_task(child.ended(process))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert descriptors() <= before
    children.end(process, 0)
