"""Subjects of scopes `next`, `steps`, `trajectory` and `group`, from the pool's rows.

Invariant: every ended item in the log is one subject, however often its row is rewritten. A row without news, as
after each reward, costs its decoding. Rows of a group are read with those of its trajectories: partition n of both topics
belongs to the same member; rows that passed earlier, or arrive later on the other topic, are looked up backwards.
"""

from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import structlog

from claw_r1.consumers.rewards.config import ScoredSlot
from claw_r1.consumers.rewards.settings import RewardsSettings
from claw_r1.consumers.rewards.subjects.log_history import FetchedCalls, LogHistory
from claw_r1.consumers.rewards.subjects.of_calls import CallSubjects, is_channel
from claw_r1.consumers.rewards.subjects.subject import ATTEMPTS, Subject, Unjudgeable
from claw_r1.consumers.rewards.subjects.trajectories import (
    TrajectoryFacts,
    by_call,
    group_is_over,
    group_subject,
    is_over,
    signature,
    subjects_of,
)
from claw_r1.datapool.digests import row_digest
from claw_r1.eventlog.errors import Retryable
from claw_r1.eventlog.records import Place, Position, Record
from claw_r1.schemas.errors import UndecodableRecord
from claw_r1.schemas.events import Event, GroupRecord, TrajectoryRecord
from claw_r1.schemas.keys import group_key, trajectory_key
from claw_r1.schemas.topics import CALLS, GROUPS, TRAJECTORIES, Topic

log = structlog.get_logger()

JUDGED_MAX = 100_000
"""Rows and turns that are known to be judged, by number."""
ROWS_MAX = 5_000
"""Rows in memory for their groups, and groups for their tasks."""
WAITS_MAX = 6
"""The number of times that a group waits for the row of a member that the same transaction wrote: some seconds."""
PlacedIds = tuple[int, str, str]
"""(partition, group_id, trajectory_id); of a group the last is empty."""
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class TrajectoryRow:
    """A row of the pool, with the digest by which its group names it."""

    row: TrajectoryRecord
    digest: str
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group's row."""

    row: GroupRecord
    timestamp_ms: int


class RowSubjects:
    """Belongs to one thread."""

    topics = (TRAJECTORIES, GROUPS)

    def __init__(self, slot: ScoredSlot, history: LogHistory, facts: FetchedCalls, settings: RewardsSettings) -> None:
        self._slot = slot
        self._history = history
        self._facts = facts
        self._settings = settings
        self._calls_topic = history.log.settings.catalogue().name(CALLS)
        self.forget()

    def add(self, record: Record) -> None:
        """One more row. Of those with one key until the next `take` only the last is read, and none of what is erased."""
        if record.value is not None:
            self._unread[record.topic, record.key] = record
        else:
            self._unread.pop((record.topic, record.key), None)

    def _event(self, record: Record) -> Event | None:
        """Undecodable rows are of a fold that this program does not know: logged, and nothing to judge."""
        try:
            return record.event() if record.value is not None else None
        except UndecodableRecord as error:
            log.warning("rewards_undecodable", slot=self._slot.name, position=str(record.position), reason=error.reason)
            return None

    def _read(self, record: Record) -> None:
        event = self._event(record)
        of_groups = self._slot.scorer.scope == "group"
        if isinstance(event, GroupRecord):
            ids = (record.partition, event.group_id, "")
            group = GroupRow(event, record.timestamp_ms)
            _remember(self._groups, ids, group, ROWS_MAX)
            if of_groups:
                self._due_groups[ids] = group
        elif isinstance(event, TrajectoryRecord):
            ids = (record.partition, event.group_id, event.trajectory_id)
            row = TrajectoryRow(event, row_digest(record.value or b"") if of_groups else "", record.timestamp_ms)
            if of_groups:
                _remember(self._rows, ids, row, ROWS_MAX)
            else:
                self._due_rows[ids] = row

    def take(self) -> list[Subject]:
        """Returns the subjects of the rows since the last time, with one look into the log for the calls of all.

        Raises LogError; Retryable where a row is not to be seen yet. Who asks again gets the same ones.
        """
        for record in self._unread.values():
            self._read(record)
        self._unread.clear()
        news = {ids: row.row for ids, row in self._due_rows.items() if self._is_news(ids, row.row)}
        groups = {ids: group.row for ids, group in self._due_groups.items() if self._is_due(group.row)}
        members = {ids: self._members(ids, self._due_groups[ids]) for ids in groups}
        fresh = {ids: rows for ids, rows in members.items() if rows and self._judged.get(ids) != _signatures(rows)}
        of_members = {(*ids[:2], row.trajectory_id): row for ids, rows in fresh.items() for row in rows}
        facts = self.facts_of({**news, **of_members}, self._due_rows)
        subjects = [subject for ids in news for subject in self._fresh_subjects(ids, facts[ids])]
        for ids, rows in fresh.items():
            beside = [facts[(*ids[:2], row.trajectory_id)] for row in rows]
            if any(map(self._has_tag, beside)):
                subjects.append(group_subject(groups[ids], ids[0], beside, pure=self._slot.scorer.pure))
            _remember(self._judged, ids, _signatures(rows), JUDGED_MAX)
        for ids, row in news.items():
            _remember(self._judged, ids, signature(row), JUDGED_MAX)
        self._due_rows.clear()
        self._due_groups.clear()
        self._waits.clear()
        return subjects

    def forget(self, _: Collection[Place] = ()) -> None:
        """Another process may take a partition: this process's memory of it would be outdated on its return."""
        self._rows: OrderedDict[PlacedIds, TrajectoryRow] = OrderedDict()
        self._groups: OrderedDict[PlacedIds, GroupRow | None] = OrderedDict()
        self._judged: OrderedDict[Hashable, Hashable] = OrderedDict()
        self._unread: dict[tuple[str, bytes | None], Record] = {}
        self._due_rows: dict[PlacedIds, TrajectoryRow] = {}
        self._due_groups: dict[PlacedIds, GroupRow] = {}
        self._waits: dict[PlacedIds, int] = {}

    def close(self) -> None:
        """Ends the client that looks calls up."""
        self._facts.close()

    def _is_news(self, ids: PlacedIds, row: TrajectoryRecord) -> bool:
        if not is_channel(row.channel, self._slot.options.channels):
            return False
        judgeable = self._slot.scorer.scope == "next" or is_over(row)
        return judgeable and row.status != "evicted" and self._judged.get(ids) != signature(row)

    def _is_due(self, group: GroupRecord) -> bool:
        return is_channel(group.channel, self._slot.options.channels) and group_is_over(group)

    def _has_tag(self, facts: TrajectoryFacts) -> bool:
        tags = self._slot.options.tags
        return not tags or bool({*tags} & {*facts.tags})

    def _fresh_subjects(self, ids: PlacedIds, facts: TrajectoryFacts) -> Iterable[Subject]:
        """Returns the subjects of a row; of its turns the ones that were not judged already."""
        if not self._has_tag(facts):
            return
        for subject in subjects_of(facts, self._slot.scorer.scope):
            key = (ids, subject.call_id)
            if subject.call_id is None or self._judged.get(key) != subject.digest:
                yield subject
            if subject.call_id is not None:
                _remember(self._judged, key, subject.digest, JUDGED_MAX)

    def facts_of(
        self, rows: Mapping[PlacedIds, TrajectoryRecord], written: Mapping[PlacedIds, TrajectoryRow]
    ) -> dict[PlacedIds, TrajectoryFacts]:
        """Each row with its group's and its calls. written: when the rows were. Raises LogError."""
        self._look_up_groups(rows, written)
        places = {ids: [Position(self._calls_topic, ids[0], at) for at in row.offsets] for ids, row in rows.items()}
        facts = self._facts.fetch({at for positions in places.values() for at in positions})
        trajectories: dict[PlacedIds, TrajectoryFacts] = {}
        for ids, row in rows.items():
            calls, flaw = by_call(row, [facts[at] for at in places[ids]])
            if row.calls_left_out:
                flaw = Unjudgeable("too_large", f"{row.calls_left_out} calls that its row has no room for")
            group = self._groups.get((*ids[:2], ""))
            trajectories[ids] = TrajectoryFacts(
                partition=ids[0],
                row=row,
                group=group.row if group is not None else None,
                calls=calls,
                flaw=flaw,
                pure=self._slot.scorer.pure,
                call_bytes_max=self._settings.call_bytes_max,
                subject_bytes_max=self._settings.subject_bytes_max,
            )
        return trajectories

    def _look_up_groups(
        self, rows: Mapping[PlacedIds, TrajectoryRecord], written: Mapping[PlacedIds, TrajectoryRow]
    ) -> None:
        """Rows of groups that passed by before this process got the partition; those that have none are remembered, too."""
        missing: dict[int, dict[bytes, PlacedIds]] = {}
        for ids in rows:
            if (*ids[:2], "") not in self._groups:
                missing.setdefault(ids[0], {})[group_key(ids[1])] = ids
        for partition, near in missing.items():
            near_ms = max(written[ids].timestamp_ms for ids in near.values())
            rows_by_key = self._history.nearest(GROUPS, partition, near, near_ms)
            for key, ids in near.items():
                record = rows_by_key.get(key)
                group = self._event(record) if record is not None else None
                pooled = GroupRow(group, record.timestamp_ms) if record and isinstance(group, GroupRecord) else None
                _remember(self._groups, (*ids[:2], ""), pooled, ROWS_MAX)

    def _members(self, ids: PlacedIds, group: GroupRow) -> list[TrajectoryRecord]:
        """Rows of the members that are over, by trajectory_id; none while one of them is still to come.

        Raises Retryable where the log shows no row yet, or only one that is older than that which the group's row is made of.
        """
        digests = {member.trajectory_id: member.digest for member in group.row.members if member.status in ATTEMPTS}
        rows = {name: self._rows.get((*ids[:2], name)) for name in digests}
        stale = {trajectory_key(ids[1], name): name for name, row in rows.items() if _digest(row) != digests[name]}
        if stale:
            nearest = self._history.nearest(TRAJECTORIES, ids[0], stale.keys(), group.timestamp_ms)
            for key, name in stale.items():
                record = nearest.get(key)
                row = self._event(record) if record is not None else None
                if record is not None and isinstance(row, TrajectoryRecord):
                    rows[name] = TrajectoryRow(row, row_digest(record.value or b""), record.timestamp_ms)
                old = record is None or record.timestamp_ms < group.timestamp_ms
                if old and _digest(rows[name]) != digests[name]:
                    self._wait(ids)
        present = [row.row for _, row in sorted(rows.items()) if row is not None]
        over = [row for row in present if is_over(row)]
        return over if group.row.closed or len(over) == len(digests) else []

    def _wait(self, ids: PlacedIds) -> None:
        self._waits[ids] = self._waits.get(ids, 0) + 1
        if self._waits[ids] <= WAITS_MAX:
            raise Retryable(f"a member's row of group {ids[1]} is not to be seen yet")


def topics_of(scope: str) -> tuple[Topic, ...]:
    """Returns the topics that subjects of a scope are made of."""
    return CallSubjects.topics if scope == "call" else RowSubjects.topics


def _digest(row: TrajectoryRow | None) -> str | None:
    return row.digest if row is not None else None


def _signatures(rows: Iterable[TrajectoryRecord]) -> tuple[object, ...]:
    return tuple((row.trajectory_id, *signature(row)) for row in rows)


def _remember(memory: "OrderedDict[K, V]", key: K, value: V, entries_max: int) -> None:
    """At the end; the oldest makes room."""
    memory[key] = value
    memory.move_to_end(key)
    while len(memory) > entries_max:
        memory.popitem(last=False)
