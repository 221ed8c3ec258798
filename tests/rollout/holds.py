"""Phases at which a process of a fleet waits for its test.

A process that has `CLAW_HOLDS`, a folder, asks at each phase whether somebody holds it there, says so, and waits until it is let go.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.patience import PATIENCE_S, until

FOLDER, WHO = "CLAW_HOLDS", "CLAW_HOLDS_WHO"
PHASES = ("asked", "loaded", "joined", "first", "middle", "done", "named")
"""Of a version that is carried: a group is asked for, its carrier is loaded, and joined; the first of its buckets is there, the third, all of
them; the copy has its name, and is about to be loaded. Each is held just before others hear of it."""
STARTING = PHASES[:3]
"""The phases that a group goes through once."""


def meet(phase: str) -> None:
    """Waits as long as this process is held here."""
    if folder := os.environ.get(FOLDER):
        held = Path(folder) / f"{os.environ[WHO]}-{phase}"
        if held.exists():
            (Path(folder) / "met").write_text(str(os.getpid()))
            while held.exists():
                time.sleep(0.005)


@contextmanager
def held(folder: Path, who: str, phase: str) -> Iterator[Path]:
    """Holds whoever has this name at the phase, while the block lasts. Yields the file of who was met."""
    hold, met = folder / f"{who}-{phase}", folder / "met"
    met.unlink(missing_ok=True)
    hold.touch()
    try:
        yield met
    finally:
        hold.unlink()


def pid_of(met: Path) -> int:
    """Returns the process that is held, once one is."""
    return int(until(lambda: met.exists() and met.read_text(), "somebody at the phase", patience_s=3 * PATIENCE_S))
