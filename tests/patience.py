"""How long a test waits for what must come: one figure and one factor, for a machine under load takes its usual time for nothing.

A test that passes never waits it out; one that measures has a bound of its own.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

FACTOR = float(os.environ.get("CLAW_PATIENCE", "1"))
"""For a machine that is known to be slow: `CLAW_PATIENCE=3 make test`."""
PATIENCE_S = 60.0 * FACTOR
LOOK_EVERY_S = 0.02
LATE_AT_MOST = 0.03
"""Of the time waited so far: so much later than it came true a condition may be found true."""


def _pauses() -> Iterator[float]:
    """Seconds between two looks: the longer the wait and the dearer a look, the fewer, since what is awaited needs the core."""
    started = asleep = time.monotonic()
    pause = 0.0
    while True:
        now = time.monotonic()
        looked = now - asleep - pause
        asleep, pause = now, max(LOOK_EVERY_S, looked, LATE_AT_MOST * (now - started))
        yield pause


def until(
    condition: Callable[[], T | None],
    what: str = "",
    *,
    step: Callable[[], object] | None = None,
    patience_s: float = PATIENCE_S,
) -> T:
    """The first true value of a condition. Between two looks `step` runs (a poll, a page's wait), or time passes.

    Raises AssertionError, with `what` was waited for, after `patience_s`.
    """
    deadline, pauses = time.monotonic() + patience_s, _pauses()
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {patience_s:.0f} s: {what or condition}"
        step() if step else time.sleep(next(pauses))
    return value


async def until_async(condition: Callable[[], T | None], what: str = "", *, patience_s: float = PATIENCE_S) -> T:
    """`until` in an event loop, which goes on between two looks."""
    deadline, pauses = time.monotonic() + patience_s, _pauses()
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {patience_s:.0f} s: {what or condition}"
        await asyncio.sleep(next(pauses))
    return value
