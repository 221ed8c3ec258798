"""The log as it stood at a given moment, for a scorer in no hurry: `claw_r1.eventlog.consume` runs on it unchanged.

Invariant: no record beyond the ends is handed out, and no offset beyond them is committed. `stop` is set once
everything before the ends is finished, by this member or by others of its group.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from claw_r1.eventlog.kafka.admin import offsets_at
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.protocols import Membership, OnRevoked
from claw_r1.eventlog.records import Place, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import Topic

log = structlog.get_logger()

LOOK_EVERY_S = 1.0
LIVE_LOOK_EVERY_S = 2.0
LIVE_BEHIND_S = 5.0
"""Live work that has not committed records of this age is behind; it commits every two seconds."""
LIVE_STUCK_S = 30.0
"""Live work that is behind and does not move for so long is not there, or waits itself: nobody has to make room."""
YIELD_S = 5.0
"""Pause before each poll while live work is behind."""


@dataclass(slots=True)
class LiveWork:
    """The live group of the same slot, as its committed offsets show it."""

    settings: LogSettings
    group_id: str
    topics: Sequence[Topic]
    _looked_s: float = -LIVE_LOOK_EVERY_S
    _moved_s: float = field(default_factory=time.monotonic)
    _committed: dict[Place, int] = field(default_factory=dict)
    _behind: bool = False

    def is_behind(self) -> bool:
        """Returns whether live work has records to judge that are older than LIVE_BEHIND_S, and moves. Raises LogError."""
        now_s = time.monotonic()
        if now_s - self._looked_s < LIVE_LOOK_EVERY_S:
            return self._behind
        self._looked_s = now_s
        due = offsets_at(self.settings, self.topics, int((time.time() - LIVE_BEHIND_S) * 1000))
        committed = KafkaLog(self.settings).committed_offsets(self.group_id, self.topics, sorted({p for _, p in due}))
        offsets = {place: at for place, at in committed.items() if at is not None}
        if offsets != self._committed:
            self._committed, self._moved_s = offsets, now_s
        late = bool(offsets) and any(offsets.get(place, 0) < at for place, at in due.items())
        behind = late and now_s - self._moved_s < LIVE_STUCK_S
        if behind != self._behind:
            log.info("backfill_yields" if behind else "backfill_goes_on", live_group=self.group_id)
        self._behind = behind
        return behind


class BoundedLog(KafkaLog):
    """A log whose members read up to `ends`."""

    def __init__(
        self,
        settings: LogSettings,
        starts: Mapping[Place, int],
        ends: Mapping[Place, int],
        stop: threading.Event,
        live: LiveWork,
        progress: Callable[[int, int], None] = lambda _done, _total: None,
    ) -> None:
        """starts: what the group committed. progress: offsets passed and all of them, once per poll."""
        super().__init__(settings)
        self._starts, self._ends, self._stop = starts, ends, stop
        self._live, self._progress = live, progress

    def membership(
        self, topics: Sequence[Topic], group_id: str, *, on_revoked: OnRevoked, work_timeout_s: float
    ) -> Membership:
        def committed() -> dict[Place, int]:
            numbers = sorted({partition for _, partition in self._ends})
            offsets = self.committed_offsets(group_id, topics, numbers)
            return {place: at for place, at in offsets.items() if at is not None}

        member = super().membership(topics, group_id, on_revoked=on_revoked, work_timeout_s=work_timeout_s)
        return BoundedMembership(member, self._ends, self._stop, committed, self._before_poll)

    def _before_poll(self, done: Mapping[Place, int]) -> None:
        """Reports its progress, and yields if the slot's live work is behind."""
        total = left_of(self._starts, self._ends)
        self._progress(total - min(total, left_of(done, self._ends)), total)
        if self._live.is_behind():
            self._stop.wait(YIELD_S)


class BoundedMembership:
    """One member of a log (`claw_r1.eventlog.protocols.Membership`) that reads no further than `ends`."""

    def __init__(
        self,
        member: Membership,
        ends: Mapping[Place, int],
        stop: threading.Event,
        committed: Callable[[], Mapping[Place, int]],
        before_poll: Callable[[Mapping[Place, int]], None] = lambda _: None,
    ) -> None:
        """committed: of the whole group. before_poll: gets the offsets before which everything is finished."""
        self._member, self._ends, self._stop = member, ends, stop
        self._read_committed, self._before_poll = committed, before_poll
        self._committed = dict(committed())
        self._looked_s = time.monotonic()
        self.places, self.commit, self.close = member.places, member.commit, member.close

    def poll(self, timeout_s: float, records_max: int) -> list[Record]:
        """Polls, which marks earlier records as finished: consume's loop signals this by polling again."""
        own = self.positions()
        if own and not left_of(own, {place: self._ends[place] for place in own}):
            self._look_elsewhere()
        done = self._committed | own
        if not left_of(done, self._ends):
            self._stop.set()
            return []
        self._before_poll(done)
        records = self._member.poll(timeout_s, records_max)
        return [record for record in records if record.offset < self._ends[record.topic, record.partition]]

    def positions(self) -> dict[Place, int]:
        """Stops at the ends: a later resumption begins there."""
        return {place: min(at, self._ends[place]) for place, at in self._member.positions().items()}

    def _look_elsewhere(self) -> None:
        """Looks up the offsets that others of the group committed, where this member has nothing left."""
        if time.monotonic() - self._looked_s >= LOOK_EVERY_S:
            self._committed = dict(self._read_committed())
            self._looked_s = time.monotonic()


def left_of(offsets: Mapping[Place, int], ends: Mapping[Place, int]) -> int:
    """Returns how many offsets are between."""
    return sum(max(0, end - offsets.get(place, 0)) for place, end in ends.items())
