"""The facts of one partition: which of them count, the pool that they must give, their calls and bases.

Memory: the facts of one partition.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from claw_r1.consumers.verify.oracle.digests import tokens_digest
from claw_r1.consumers.verify.oracle.pool import pool_of
from claw_r1.consumers.verify.oracle.soundness import NoFact, PooledFact, sound
from claw_r1.consumers.verify.pool import RowDigests, digest
from claw_r1.consumers.verify.report import Report
from claw_r1.consumers.verify.runs import PlannedCall
from claw_r1.datapool.delta_decoding import resolve
from claw_r1.datapool.errors import PromptBroken
from claw_r1.eventlog.kafka.reader import stream_ranges
from claw_r1.eventlog.partitioner import partition_of
from claw_r1.eventlog.records import Place, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.arrays import ITEM_BYTES
from claw_r1.schemas.errors import UndecodableRecord
from claw_r1.schemas.events import CallCaptured, Event, FactPosition
from claw_r1.schemas.keys import group_key

PlacedEvent = tuple[Event, FactPosition]
Plans = Mapping[int, Sequence[PlannedCall]]
"""The words of plans on calls, by offset in claw.calls."""
CallIds = tuple[str, str, str]
"""Group, trajectory, call."""


@dataclass(slots=True)
class PartitionFacts:
    """Everything read of a partition so far."""

    settings: LogSettings
    partition: int
    groups: dict[str, list[PlacedEvent]] = field(default_factory=lambda: defaultdict(list))
    calls: dict[CallIds, tuple[str | None, str | None]] = field(default_factory=dict)
    """Call -> base of its prompt, base of its request."""
    planned_seen: set[int] = field(default_factory=set)
    """Offsets in claw.calls that a plan points to and where a call is."""
    offsets: dict[str, int] = field(default_factory=dict)
    """Full topic name -> next offset to read."""

    def read(self, ends: Mapping[Place, int], report: Report, planned: Plans) -> None:
        """Go on up to `ends`. Raises HistoryCut, BrokerUnreachable."""
        mine = {
            place: (self.offsets.get(place[0], 0), end) for place, end in ends.items() if place[1] == self.partition
        }
        for record in stream_ranges(self.settings, mine):
            report.counts["facts"] += 1
            event = self._fact(record)
            if event is None or isinstance(event, NoFact):
                report.counts["poison" if event is None else "passed_by"] += 1
                continue
            at = FactPosition(topic=record.topic, partition=record.partition, offset=record.offset)
            self.groups[event.group_id].append((event, at))
            if isinstance(event, CallCaptured):
                self._call(event, at, report, planned)
        self.offsets |= {topic: end for (topic, _), (_, end) in mine.items()}

    def _fact(self, record: Record) -> PooledFact | NoFact | None:
        """None where the streams make a dead letter of it."""
        try:
            event = record.event()
        except UndecodableRecord:
            return None
        if isinstance(event, NoFact):
            return event
        if not sound(event):
            return None
        key = group_key(event.group_id)
        here = key == record.key and partition_of(key, self.settings.partitions) == record.partition
        return event if here else None

    def _call(self, call: CallCaptured, at: FactPosition, report: Report, planned: Plans) -> None:
        report.counts["calls"] += 1
        self.calls[call.group_id, call.trajectory_id, call.call_id] = (
            call.prompt.base_call_id,
            call.request.base_call_id,
        )
        plans = planned.get(at.offset, ())
        if plans:
            self.planned_seen.add(at.offset)
            _compare(call, at.offset, plans, report)

    def expected_at(self, offsets: Mapping[str, int]) -> RowDigests:
        """Digests of the rows that the pool must have at these offsets."""
        rows: dict[tuple[str, bytes], bytes] = {}
        for facts in self.groups.values():
            folded = [(event, at) for event, at in facts if at.offset < offsets.get(at.topic, 0)]
            rows |= {key: digest(value) for key, value in pool_of(folded).items()}
        return rows

    def dangling(self) -> Iterator[str]:
        """Calls whose prompt or request continues a call that is not there."""
        for (group_id, trajectory_id, call_id), bases in self.calls.items():
            for base in sorted({base for base in bases if base is not None}):
                if (group_id, trajectory_id, base) not in self.calls:
                    yield f"{group_id}/{trajectory_id}/{call_id} continues {base}"

    def wrong_prompts(self) -> Iterator[str]:
        """Calls whose prompt's digest differs from its capture's."""
        for group_id, facts in self.groups.items():
            captures: dict[str, list[CallCaptured]] = defaultdict(list)
            for event, _ in facts:
                if isinstance(event, CallCaptured):
                    captures[event.trajectory_id].append(event)
            for trajectory_id, calls in captures.items():
                yield from (f"{group_id}/{trajectory_id}/{call_id}" for call_id in wrong_prompts(calls))


def _compare(call: CallCaptured, offset: int, plans: Sequence[PlannedCall], report: Report) -> None:
    tokens = tokens_digest(call)
    for plan in plans:
        if plan.digest != tokens:
            report.found("planned_call_changed", f"{plan.where} at offset {offset}")
        if plan.oldest_version is not None and all(span.version < plan.oldest_version for span in call.spans):
            report.found("trained_too_old", f"{plan.where} has no token of version {plan.oldest_version} or younger")


def wrong_prompts(calls: Iterable[CallCaptured]) -> list[str]:
    """call_ids of one trajectory's captures that no capture of their base gives the ids they promise, sorted.

    A missing base, or one with a wrong prompt, proves nothing about the calls after it.
    """
    wholes: dict[str | None, set[bytes]] = defaultdict(set)
    wholes[None] = {b""}  # what a full prompt is written against
    unresolved = list(calls)
    while rest := [call for call in unresolved if not _put_together(call, wholes)]:
        if len(rest) == len(unresolved):
            break
        unresolved = rest
    return sorted({call.call_id for call in rest if wholes[call.prompt.base_call_id]})


def _put_together(call: CallCaptured, wholes: dict[str | None, set[bytes]]) -> bool:
    """Returns whether the prompt can be put together; then the ids of prompt and response are added to `wholes`."""
    for base in tuple(wholes[call.prompt.base_call_id]):
        try:
            prompt = resolve(call.prompt, base, ITEM_BYTES)
        except PromptBroken:
            continue
        wholes[call.call_id].add(prompt + call.response_ids)
        return True
    return False
