"""Taking a partition over: what the pool says of it, and what the group acknowledged without our folding it.

Invariant: called only after the former owner is fenced, so what is read here is final. State comes from the pool's own
records; tokens are passed over by key. A position behind the group's offset is healed before the first event flows:
Faust was seen to acknowledge records that it never delivered.
"""

from collections.abc import Mapping, Sequence

import structlog

from datapool import FOLD_VERSION
from datapool.restore import restore
from eventlog.reader import LogReader, committed_offsets, read_range
from eventlog.records import Record
from eventlog.settings import LogSettings
from schemas.events import Event, GroupRecord, StreamPosition
from schemas.keys import is_tokens_key
from schemas.topics import CALLS, GROUPS, POSITIONS, REWARDS, STEPS, TRAJECTORIES
from streams.errors import FoldVersionMismatch
from streams.partition import PartitionState, waits

log = structlog.get_logger()

FACTS = (CALLS, REWARDS)
POOL = (STEPS, TRAJECTORIES, GROUPS, POSITIONS)


def recover(settings: LogSettings, partitions: Sequence[int]) -> dict[int, PartitionState]:
    """States as the pool has them. Raises BrokerUnreachable, TopicMissing, FoldVersionMismatch."""
    latest = _latest(settings, partitions)
    return {partition: state_of(partition, settings.partitions, records) for partition, records in latest.items()}


def _latest(settings: LogSettings, partitions: Sequence[int]) -> dict[int, list[Record]]:
    """The latest record of each key, without tokens and tombstones; decoded only afterwards."""
    rows: dict[int, dict[tuple[str, bytes], Record]] = {partition: {} for partition in partitions}
    steps = settings.catalogue().name(STEPS)
    with LogReader(settings, POOL, partitions=partitions) as reader:
        for record in reader.read_to_end():
            key = record.key or b""
            if record.topic == steps and is_tokens_key(key):
                continue
            if record.value is None:
                rows[record.partition].pop((record.topic, key), None)
            else:
                rows[record.partition][record.topic, key] = record
    return {partition: list(mine.values()) for partition, mine in rows.items()}


def state_of(partition: int, partitions: int, records: Sequence[Record]) -> PartitionState:
    """The state that these rows of the pool are the records of. Raises FoldVersionMismatch."""
    events = [record.event() for record in records]
    return PartitionState(
        partition,
        partitions,
        offsets=_offsets(events),
        groups=restore(events),
        waiting=[event.group_id for event in events if isinstance(event, GroupRecord) and waits(event)],
    )


def _offsets(events: Sequence[Event]) -> Mapping[str, int]:
    for event in events:
        if isinstance(event, StreamPosition):
            if event.fold_version != FOLD_VERSION:
                raise FoldVersionMismatch(
                    f"the pool of partition {event.partition} is of fold version {event.fold_version}, this is "
                    f"{FOLD_VERSION}: `claw rebuild` makes a generation of this version"
                )
            return event.offsets
    return {}


def heal_behind_group(settings: LogSettings, group_id: str, states: Mapping[int, PartitionState]) -> int:
    """Fold what the consumer group is past and the pool is not; records read. Raises HistoryCut, BrokerUnreachable."""
    healed = 0
    for (topic, partition), offset in committed_offsets(settings, group_id, FACTS, sorted(states)).items():
        healed += heal(settings, states[partition], topic, offset or 0)
    return healed


def heal(settings: LogSettings, state: PartitionState, topic: str, end: int) -> int:
    """Fold everything of `topic` from the expected offset up to `end`, a position and never a count; records read."""
    start = state.expected(topic)
    if start >= end:
        return 0
    records = read_range(settings, topic, state.partition, start, end)
    for record in records:
        state.apply(record)
    state.advance(topic, end)
    log.warning("streams_healed", topic=topic, partition=state.partition, start=start, end=end, records=len(records))
    return len(records)
