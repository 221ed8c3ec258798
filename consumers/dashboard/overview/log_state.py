"""The state that only the log itself knows: how far streams are behind the facts."""

import time
from collections.abc import Callable, Iterator

from claw_r1.consumers.dashboard.overview.alarms import alarm
from claw_r1.consumers.dashboard.page_log import PageLog
from claw_r1.schemas.json_values import JsonDict
from claw_r1.schemas.topics import FACTS

STUCK_S = 10.0
BEHIND_MAX = 5000
"""Facts that streams may be behind without a word."""


class LogState:
    """Remembers the last progress of streams, to see whether they move. One caller at a time."""

    def __init__(self, log: PageLog, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._log, self._clock_s = log, clock_s
        self._folded: int | None = None
        """The facts folded when the last answer saw that streams were behind; None: they were not."""
        self._since_s = clock_s()

    def answer(self, letters: int | None) -> JsonDict:
        """letters: dead letters that wait; None: too many to count. Raises LogError."""
        settings = self._log.settings
        ends = self._log.end_offsets(FACTS)
        group = settings.catalogue().streams_group
        committed = self._log.committed_offsets(group, FACTS, range(settings.partitions))
        behind = sum(max(0, ends[place] - (offset or 0)) for place, offset in committed.items())
        folded = sum(offset or 0 for offset in committed.values())
        if folded != self._folded:
            self._since_s = self._clock_s()
        self._folded = folded if behind else None
        state = {"behind": behind, "stuck_s": round(self._clock_s() - self._since_s, 1), "dead_letters": letters}
        never = all(offset is None for offset in committed.values())
        return {**state, "alarms": list(_alarms(state, never=never))}


def _alarms(state: JsonDict, *, never: bool) -> Iterator[JsonDict]:
    behind, to = state["behind"], ("operations", {"tab": "processes"})
    if behind and (never or state["stuck_s"] >= STUCK_S):
        why = "has ever read them" if never else f"has moved for {state['stuck_s']:.0f} s"
        what = f"{behind:,} facts are not folded into the pool, and no stream processor {why}."
        yield alarm("problem", what, "Nothing gets ready without one:", "claw streams", to)
    elif behind > BEHIND_MAX:
        yield alarm("note", f"Streams are {behind:,} facts behind: the pool shows an earlier moment.", None, None, to)
    if state["dead_letters"] != 0:
        number = "Very many" if state["dead_letters"] is None else f"{state['dead_letters']:,}"
        what = f"{number} dead letters wait: records that nobody could read or fold."
        todo = "Once the cause is mended they can be redriven:"
        yield alarm("note", what, todo, "claw dlq list --pending", ("operations", {"tab": "letters"}))
