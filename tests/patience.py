"""How long a test waits for what must come: one figure and one factor, for a machine under load takes its usual time for nothing.

A test that passes never waits it out; one that measures has a bound of its own.
"""

import asyncio
import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

FACTOR = float(os.environ.get("CLAW_PATIENCE", "1"))
"""For a machine that is known to be slow: `CLAW_PATIENCE=3 make test`."""
PATIENCE_S = 60.0 * FACTOR
LOOK_EVERY_S = 0.02


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
    deadline = time.monotonic() + patience_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {patience_s:.0f} s: {what or condition}"
        step() if step else time.sleep(LOOK_EVERY_S)
    return value


async def until_async(condition: Callable[[], T | None], what: str = "", *, patience_s: float = PATIENCE_S) -> T:
    """`until` in an event loop, which goes on between two looks."""
    deadline = time.monotonic() + patience_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {patience_s:.0f} s: {what or condition}"
        await asyncio.sleep(LOOK_EVERY_S)
    return value
