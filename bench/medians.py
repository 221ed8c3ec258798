"""Both sides of a ratio in turn, and what is made of their repeats."""

import gc
import os
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

Work = Callable[[], object]


def seconds_of(work: Work, clock: Callable[[], float] = time.process_time) -> float:
    """CPU seconds of this process, or those of another clock."""
    began = clock()
    work()
    return clock() - began


def median_ms(work: Work, repeats: int) -> float:
    """CPU milliseconds."""
    return 1000 * median_of(lambda: seconds_of(work), repeats)


def median_of(measure: Callable[[], float], repeats: int) -> float:
    """The median of so many."""
    return statistics.median(measure() for _ in range(repeats))


def in_turns(
    sides: Mapping[str, Work], repeats: int, clock: Callable[[], float] = time.process_time
) -> dict[str, float]:
    """Side -> the median of its seconds, after a turn of all that is not counted: they take turns."""
    turns = [{name: seconds_of(work, clock) for name, work in sides.items()} for _ in range(repeats + 1)]
    return medians(turns[1:])


def medians(turns: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Name -> the median over the turns."""
    return {name: statistics.median(turn[name] for turn in turns) for name in turns[0]}


def percentile(values: Sequence[float], share: int) -> float:
    """Returns the percentile of a sample; NaN of an empty one."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * share // 100)] if ordered else float("nan")


def children_s() -> float:
    """CPU seconds of the children of this process that ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def resident_bytes() -> int:
    """The memory of this process, after a collection of garbage."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
