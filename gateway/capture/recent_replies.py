"""The calls of recent trajectories that this process captured and replied to, for a runner whose agent does not count them.

Invariant: for information only. A process that was started later, or another one of several, knows nothing of these calls;
so a completion never counts by them (docs/adr/0003-completions-count.md).
"""

import sys
from collections import OrderedDict

from claw_r1.gateway.headers import version_range
from claw_r1.gateway.paths import Identity
from claw_r1.schemas.events import VersionSpan

CALLS_MAX = 10_000
"""The most calls of one trajectory, the last ones."""
ALL_CALLS_MAX = 100_000
"""About 220 bytes each, five to a trajectory; in a deque of dictionaries it was 530."""


class RecentReplies:
    """Call id and version label of each reply, by trajectory; those whose last reply is
    oldest are forgotten first."""

    def __init__(self, calls_max: int = CALLS_MAX, all_calls_max: int = ALL_CALLS_MAX) -> None:
        self._calls_max, self._all_calls_max, self._count = calls_max, all_calls_max, 0
        self._calls: OrderedDict[Identity, list[tuple[str, str | None]]] = OrderedDict()

    def note(self, who: Identity, call_id: str, spans: tuple[VersionSpan, ...]) -> None:
        """A reply is stored and about to be sent."""
        version = sys.intern(version_range(spans)) if spans else None
        calls = self._calls.setdefault(who, [])
        calls.append((call_id, version))
        self._count += 1
        if len(calls) > self._calls_max:
            del calls[0]
            self._count -= 1
        self._calls.move_to_end(who)
        while self._count > self._all_calls_max and len(self._calls) > 1:
            self._count -= len(self._calls.popitem(last=False)[1])

    def of(self, who: Identity) -> list[dict[str, str | None]]:
        """In the order of the replies."""
        return [{"call_id": call_id, "policy_version": version} for call_id, version in self._calls.get(who, ())]
