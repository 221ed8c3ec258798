"""The sizes of groups that nobody declared: an agent that uses one group id for all its tasks gets a warning, then an error.

Invariant: a member that is in its group already is never refused, nor is any member of a declared group or of a group
that is one trajectory. The count is of what this process saw and of what the pool has, never more than the group has; so
several gateways, or one that was just started, may let in some more until the pool's record arrives.

Input: rows of `datapool.groups` (on a follower's thread) and the identity of each request (on the event loop).
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass, field

import structlog

from claw_r1.datapool.fold.bounds import GROUP_SIZE_MAX
from claw_r1.gateway.errors import InvalidRequest
from claw_r1.gateway.metrics import Metrics
from claw_r1.gateway.paths import Identity
from claw_r1.schemas.events import GroupRecord

CROWDED_MIN = GROUP_SIZE_MAX * 8 // 10
"""Members from which on there is a warning, and the pool's record of a group is kept."""
REMEMBERED_MAX = 100_000
"""Groups, and members of undeclared ones, that one process remembers; groups whose last new member is oldest are
forgotten first."""
POOLED_MAX = 32
"""The latest records of large groups that are kept."""
WHAT_TO_DO = "give each task a group id of its own, or declare the group with POST /groups"
log = structlog.get_logger()


@dataclass(slots=True)
class _Pooled:
    """A large group as the pool has it."""

    members: frozenset[str]
    count: int


@dataclass(slots=True)
class _Seen:
    """A group as this process saw it."""

    members: set[str] = field(default_factory=set)
    declared: bool = False
    warned: bool = False


class Crowds:
    """The members of groups. Looked up without a lock; what changes it holds one."""

    def __init__(self, metrics: Metrics, size_max: int = GROUP_SIZE_MAX, crowded_min: int = CROWDED_MIN) -> None:
        """size_max: the member of an undeclared group that is refused, counted from 1."""
        self._metrics, self._size_max, self._crowded_min = metrics, size_max, crowded_min
        self._seen: OrderedDict[str, _Seen] = OrderedDict()
        self._remembered = 0
        self._pooled: OrderedDict[str, _Pooled] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, record: GroupRecord) -> None:
        """Take in the pool's record of a group."""
        group_id, count = record.group_id, len(record.members) + record.members_left_out
        with self._lock:
            if record.declared:
                self._pooled.pop(group_id, None)
                if group_id in self._seen or count >= self._crowded_min:
                    self._group(group_id).declared = True
            elif count >= self._crowded_min:
                self._pooled[group_id] = _Pooled(frozenset(member.trajectory_id for member in record.members), count)
                self._pooled.move_to_end(group_id)
                if len(self._pooled) > POOLED_MAX:
                    self._pooled.popitem(last=False)

    def declared(self, group_id: str) -> None:
        """Note that a group has just been declared through this process."""
        with self._lock:
            self._group(group_id).declared = True

    def require_room(self, who: Identity) -> None:
        """Make a trajectory a member of its group, unless it is one. Raises InvalidRequest when the group is full."""
        if who.trajectory_id == who.group_id:
            return
        seen = self._seen.get(who.group_id)
        if seen is None or not (seen.declared or who.trajectory_id in seen.members):
            self._join(who)

    def _join(self, who: Identity) -> None:
        with self._lock:
            seen, pooled = self._group(who.group_id), self._pooled.get(who.group_id)
            if seen.declared:  # meanwhile
                return
            self._look(who, seen, pooled)
            seen.members.add(who.trajectory_id)
            self._remembered += 1

    def _look(self, who: Identity, seen: _Seen, pooled: _Pooled | None) -> None:
        """Warn once, and refuse at the end."""
        if len(seen.members) + 1 < self._crowded_min and pooled is None:
            return
        pool = pooled or _Pooled(frozenset(), 0)
        if who.trajectory_id in pool.members:
            return
        count = 1 + max(pool.count, len(pool.members) + len(seen.members - pool.members))
        if not seen.warned:
            seen.warned = True
            self._metrics.crowding.labels("warned").inc()
            log.warning(
                "group_crowded", group_id=who.group_id, members=count, limit=self._size_max - 1, hint=WHAT_TO_DO
            )
        if count >= self._size_max:
            self._metrics.crowding.labels("refused").inc()
            raise InvalidRequest(
                f"group {who.group_id} has {count - 1} members and nobody declared it: {WHAT_TO_DO}",
                param="group_id",
                code="group_crowded",
            )

    def _group(self, group_id: str) -> _Seen:
        seen = self._seen.get(group_id)
        if seen is None:
            while self._remembered >= REMEMBERED_MAX and self._seen:
                self._remembered -= 1 + len(self._seen.popitem(last=False)[1].members)
            seen = self._seen[group_id] = _Seen()
            self._remembered += 1
        self._seen.move_to_end(group_id)
        return seen
