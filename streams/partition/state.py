"""Everything derived from one partition: facts in, one batch of records out per flush. No clock, no disk, no log.

Invariant: a batch, together with the batches before it, is a function of the records up to `offsets`; batch and
position are written in one transaction. A repeated fact changes nothing; a poison record makes one dead letter.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

import structlog

from claw_r1.datapool import FOLD_VERSION
from claw_r1.datapool.errors import RecordOverfull, UnusableFact
from claw_r1.datapool.fold.fold import flag, fold
from claw_r1.datapool.fold.project import GroupImage, PoolRow, RowKey, Rows, changes
from claw_r1.datapool.fold.readiness import waits_for_members
from claw_r1.datapool.fold.state import GroupState
from claw_r1.datapool.fold.validation import PASSED_BY, check_place, usable
from claw_r1.eventlog.dead_letters import dead_letter
from claw_r1.eventlog.records import Outgoing, Record
from claw_r1.schemas.cloudevents import Headers, headers, of_run
from claw_r1.schemas.errors import UndecodableRecord
from claw_r1.schemas.events import GroupRecord, StreamPosition
from claw_r1.schemas.topics import GROUPS, POSITIONS, STEPS, TRAJECTORIES
from claw_r1.streams.partition.groups import RESTING_MAX, ColdStore, Groups
from claw_r1.streams.partition.isolation import Fold, FoldedFact, isolate
from claw_r1.streams.partition.row_sizes import writable_changes

log = structlog.get_logger()

FoldOutcome = Literal["folded", "passed_by", "poison", "fold_bug"]
POOL = {topic.name: topic for topic in (STEPS, TRAJECTORIES, GROUPS)}
READER = "streams"


class PartitionState:
    """The groups of one partition and their unwritten changes."""

    def __init__(
        self,
        partition: int,
        partitions: int,
        *,
        offsets: Mapping[str, int] | None = None,
        groups: Mapping[str, GroupState] | None = None,
        waiting: Iterable[str] = (),
        fold: Fold = fold,
        cold: ColdStore | None = None,
        resting_max: int = RESTING_MAX,
    ) -> None:
        """partitions: of every topic. offsets: full topic name -> next. waiting: ids of groups a reactor may act on.

        Without a cold store every group stays in memory. With one, it holds the rows of all groups that are not given.
        """
        self.partition = partition
        self.folded = 0
        self._groups = Groups(groups or {}, waiting, cold, resting_max)
        self._fold = fold
        self._partitions = partitions
        self._offsets: dict[str, int] = dict(offsets or {})
        self._dirty: dict[str, list[FoldedFact]] = {}
        self._letters: list[Outgoing] = []
        self._moved = False

    @property
    def groups(self) -> Mapping[str, GroupState]:
        """The groups that are in memory."""
        return self._groups.states

    @property
    def pending(self) -> bool:
        """Something happened that no batch holds yet."""
        return self._moved

    @property
    def waits_for_members(self) -> bool:
        """All that changed since the last batch are groups that cannot be ready before more of their members have ended."""
        states = self._groups.states
        return not self._letters and all(
            group_id in states and waits_for_members(states[group_id]) for group_id in self._dirty
        )

    def expected(self, topic: str) -> int:
        """The offset that comes next. topic: full name."""
        return self._offsets.get(topic, 0)

    def advance(self, topic: str, offset: int) -> None:
        """Everything below `offset` is folded or is no record."""
        if offset > self.expected(topic):
            self._offsets[topic] = offset
            self._moved = True

    def waiting(self) -> list[GroupImage]:
        """Groups that only time can move on, as of the last snapshot."""
        return self._groups.waiting(self._dirty)

    def untouched(self, before_us: int) -> list[GroupRecord]:
        """Old groups without a fact since, as of the last snapshot, the oldest first."""
        return self._groups.untouched(before_us, self._dirty)

    def close(self) -> None:
        """Give the cold store's space back."""
        self._groups.close()

    def apply(self, record: Record) -> FoldOutcome:
        """Fold one record. A record that cannot be folded becomes a dead letter; nothing is raised for it. People's words that the
        pool does not fold are passed by: only the offset moves. Raises RowOfAnotherVersion or StoreFailed where a
        stored row of its group cannot be read."""
        is_redelivered = record.offset < self.expected(record.topic)
        try:
            outcome: FoldOutcome = self._take(record, is_redelivered)
        except (UndecodableRecord, UnusableFact) as poison:
            outcome = "poison"
            if not is_redelivered:
                self._dead_letter(record, poison.reason, str(poison))
        self.advance(record.topic, record.offset + 1)
        self._moved = True
        self.folded += 1
        return outcome

    def _take(self, record: Record, is_redelivered: bool) -> FoldOutcome:
        event = record.event()
        if type(event) in PASSED_BY:
            return "passed_by"
        fact = usable(event)
        check_place(fact, record.key, record.partition, self._partitions)
        if fact.group_id not in self._dirty and self._groups.has(fact.group_id):
            self._groups.image(fact.group_id)  # of what is written, before it changes
        self._dirty.setdefault(fact.group_id, [])
        return self._fold_or_flag(FoldedFact(record, fact, is_redelivered))

    def _fold_or_flag(self, folded: FoldedFact) -> FoldOutcome:
        """Folds the fact, and parks it alone for whatever the fold does wrong (architecture, promise 4)."""
        group_id, position, states = folded.fact.group_id, folded.position, self._groups.states
        before = states.get(group_id)
        try:
            states[group_id] = self._fold(before, folded.fact, position)
        except Exception as bug:  # noqa: BLE001 - a bug in a fold is not known by type
            self._park(before, folded, bug)
            self._dirty[group_id].append(folded._replace(parked=True))
            return "fold_bug"
        self._dirty[group_id].append(folded)
        return "folded"

    def _park(self, before: GroupState | None, folded: FoldedFact, bug: Exception) -> GroupState | None:
        """The group with the fact's subject flagged. A repeated fact changes nothing: it was settled."""
        if folded.is_redelivered:
            return before
        flagged = self._groups.states[folded.fact.group_id] = flag(before, folded.fact)
        if isinstance(bug, RecordOverfull):
            self._dead_letter(folded.record, "record_too_large", str(bug))
            return flagged
        log.error("streams_fold_bug", group_id=folded.fact.group_id, fact=type(folded.fact).__name__, exc_info=bug)
        self._dead_letter(folded.record, "fold_bug", f"{type(bug).__name__}: {bug}")
        return flagged

    def _dead_letter(self, record: Record, reason: str, error: str) -> None:
        log.warning(
            "streams_dead_letter", topic=record.topic, partition=record.partition, offset=record.offset, reason=reason
        )
        self._letters.append(dead_letter(record, reason, error, reader=READER))

    def take_batch(self, now_us: int) -> list[Outgoing]:
        """The batch of everything since the last one: pool rows, dead letters, position. Resets what is pending."""
        rows = {group_id: self._project(group_id) for group_id in list(self._dirty)}
        batch = [
            self._outgoing(key, row, of_run(self._groups.states[group_id].run_id))
            for group_id, changed in rows.items()
            for key, row in changed.items()
        ]
        batch += [*self._letters, self._position(now_us)]
        self._dirty, self._letters, self._moved = {}, [], False
        self._groups.settle(rows)
        return batch

    def _project(self, group_id: str) -> Rows:
        """Returns the changed rows of a group. A state that cannot be projected is built again without the facts that
        spoil it."""
        groups = self._groups
        before = groups.images.get(group_id)
        try:
            groups.images[group_id], rows = writable_changes(before, groups.states[group_id])
        except Exception:  # noqa: BLE001 - as above
            state = isolate(before, self._dirty[group_id], self._fold, self._park)
            if state is not None:
                groups.states[group_id] = state
            # What is flagged instead may make a full row some words larger: there is room for them.
            groups.images[group_id], rows = changes(before, groups.states[group_id])
        if before is not None and before.state.run_id not in (None, groups.states[group_id].run_id):
            rows = {**changes(None, groups.states[group_id])[1], **rows}  # the headers of all its rows name another run
        return rows

    def _outgoing(self, key: RowKey, row: PoolRow | None, own: Headers) -> Outgoing:
        topic = POOL[key.topic]
        if row is None:
            return Outgoing.tombstone(topic, key.key, self.partition)
        return Outgoing(
            topic=topic, key=key.key, value=row.value, headers=(*headers(row.record), *own), partition=self.partition
        )

    def _position(self, now_us: int) -> Outgoing:
        position = StreamPosition(
            partition=self.partition,
            offsets=dict(sorted(self._offsets.items())),
            fold_version=FOLD_VERSION,
            updated_at_us=now_us,
        )
        return Outgoing.of(POSITIONS, str(self.partition).encode(), position, self.partition)
