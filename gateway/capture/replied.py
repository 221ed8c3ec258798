"""The calls of recent trajectories that this process captured and replied to, for a runner whose agent keeps no account of them.

Invariant: for information only. A process that was started later, or another one of several, knows nothing of these calls;
so a completion never counts by them (docs/adr/0003-completions-count.md).
"""

from collections import OrderedDict

from gateway.headers import version_range
from gateway.identity import Identity
from schemas.events import VersionSpan

TRAJECTORIES_MAX = 10_000


class Replied:
    """Call id and version label of each reply, by trajectory; those whose last reply is oldest are forgotten first."""

    def __init__(self) -> None:
        self._calls: OrderedDict[Identity, list[dict[str, str | None]]] = OrderedDict()

    def note(self, who: Identity, call_id: str, spans: tuple[VersionSpan, ...]) -> None:
        """A reply is stored and about to be sent."""
        version = version_range(spans) if spans else None
        self._calls.setdefault(who, []).append({"call_id": call_id, "policy_version": version})
        self._calls.move_to_end(who)
        if len(self._calls) > TRAJECTORIES_MAX:
            self._calls.popitem(last=False)

    def of(self, who: Identity) -> list[dict[str, str | None]]:
        """In the order of the replies."""
        return self._calls.get(who, [])
