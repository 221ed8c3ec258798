"""The check whether a starting engine still makes progress, which shows in its processor time and in its
log.

A large model, a first compilation or weights on a slow file system take their time, and killing them starts them
again: a start is ended when nothing has moved for some time, or at a far bound.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from claw_r1.rollout.errors import ServerDied

PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
MOVES_CPU_S = 0.2
"""Processor time that is more than a process which waits for ever spends on waiting."""


class StartSettings(Protocol):
    """The patience with a start."""

    @property
    def start_timeout_s(self) -> float:
        """In all."""

    @property
    def start_quiet_s(self) -> float:
        """With nothing that moves."""


@dataclass(frozen=True, slots=True)
class Activity:
    """The activity of an engine so far."""

    cpu_s: float
    log_bytes: int


class StartPatience:
    """One start. `look` is called again and again until the engine is healthy."""

    def __init__(self, settings: StartSettings, now_s: float) -> None:
        self._settings = settings
        self._began_s = self._moved_s = now_s
        self._last = Activity(0.0, 0)

    def look(self, activity: Activity, now_s: float) -> None:
        """Raises ServerDied, which names the setting, once the engine has taken too long."""
        if activity.cpu_s - self._last.cpu_s >= MOVES_CPU_S or activity.log_bytes != self._last.log_bytes:
            self._last, self._moved_s = activity, now_s
        quiet_s, timeout_s = self._settings.start_quiet_s, self._settings.start_timeout_s
        if now_s - self._moved_s > quiet_s:
            raise ServerDied(
                f"vLLM is not healthy, and for {quiet_s:g} s used no processor and wrote no log (--start-quiet-s)"
            )
        if now_s - self._began_s > timeout_s:
            raise ServerDied(f"vLLM was not healthy after {timeout_s:g} s (--start-timeout-s)")


def activity_of(pid: int, log_file: Path | None) -> Activity:
    """Returns the activity of a process with all of its descendants, and of its log; one that is not there has done
    nothing."""
    log_bytes = 0
    if log_file is not None:
        with suppress(OSError):
            log_bytes = log_file.stat().st_size
    return Activity(_cpu_s(pid), log_bytes)


def _cpu_s(pid: int) -> float:
    """With that of children that have ended, as their parents count it."""
    ticks, parents = dict[int, int](), dict[int, int]()
    for each, parent, spent in _processes():
        ticks[each], parents[each] = spent, parent
    return sum(spent for each, spent in ticks.items() if _descends(each, pid, parents)) / TICKS_PER_S


def _descends(each: int, ancestor: int, parents: dict[int, int]) -> bool:
    while each != ancestor and each in parents:
        each = parents[each]
    return each == ancestor


def _processes() -> Iterator[tuple[int, int, int]]:
    """Pid, parent, and ticks of each process of the machine (fields 4 and 14-17 of proc(5)'s stat)."""
    for entry in PROC.iterdir():
        if entry.name.isdecimal():
            with suppress(OSError, ValueError):  # it has just ended
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                yield int(entry.name), int(fields[1]), sum(map(int, fields[11:15]))
