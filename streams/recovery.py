"""Taking a partition over: what the pool says of it, and what the group acknowledged without our folding it.

Invariant: called only after the former owner is fenced, so what is read here is final. State comes from the pool's own
records, put into a local cold store and made into states when facts ask for them. A
position behind the group's offset is healed before the first event flows: Faust was seen to acknowledge records that it never delivered.
"""

from collections.abc import Mapping, Sequence

import structlog

from claw_r1.datapool import FOLD_VERSION
from claw_r1.eventlog.kafka.reader import LogReader, committed_offsets, read_range
from claw_r1.eventlog.records import Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.codec import decode
from claw_r1.schemas.events import GroupRecord, StreamPosition
from claw_r1.schemas.keys import group_key, parts
from claw_r1.schemas.topics import CALLS, GROUPS, POSITIONS, REWARDS, STEPS, TRAJECTORIES
from claw_r1.streams.cold_store import SqliteColdStore
from claw_r1.streams.errors import FoldVersionMismatch
from claw_r1.streams.partition.groups import RESTING_MAX, ColdRow
from claw_r1.streams.partition.state import PartitionState
from claw_r1.streams.reactors import waits

log = structlog.get_logger()

FACTS = (CALLS, REWARDS)
CHUNK_ROWS = 1000
NO_GROUP = b""
"""The group of a position. A group whose id is empty shares it, which is harmless: `restore` passes positions over."""
POOL = (STEPS, TRAJECTORIES, GROUPS, POSITIONS)


def recover(settings: LogSettings, partitions: Sequence[int]) -> dict[int, PartitionState]:
    """States as the pool has them. Raises BrokerUnreachable, TopicMissing, FoldVersionMismatch."""
    stores = {partition: SqliteColdStore() for partition in partitions}
    _fill(settings, stores)
    return {partition: state_of(partition, settings.partitions, cold) for partition, cold in stores.items()}


def _fill(settings: LogSettings, stores: Mapping[int, SqliteColdStore]) -> None:
    """All rows, in chunks; nothing is decoded and no group is in memory."""
    topics = {settings.catalogue().name(topic): topic.name for topic in POOL}
    chunks: dict[int, list[ColdRow]] = {partition: [] for partition in stores}
    with LogReader(settings, POOL, partitions=sorted(stores)) as reader:
        for record in reader.read_to_end():
            chunk = chunks[record.partition]
            chunk.append(_row(topics[record.topic], record))
            if len(chunk) >= CHUNK_ROWS:
                stores[record.partition].write(chunk)
                chunk.clear()
    for partition, chunk in chunks.items():
        stores[partition].write(chunk)


def _row(topic: str, record: Record) -> ColdRow:
    key = record.key or b""
    if topic in (STEPS.name, TRAJECTORIES.name):
        return ColdRow(topic, key, group_key(parts(key)[0]), record.value)
    if topic == GROUPS.name:
        return ColdRow(topic, key, key, record.value, touched_us=0)
    return ColdRow(topic, key, NO_GROUP, record.value)


def state_of(
    partition: int, partitions: int, cold: SqliteColdStore, *, resting_max: int = RESTING_MAX
) -> PartitionState:
    """The state that these rows of the pool are the records of. Raises FoldVersionMismatch."""
    groups = (event for value in cold.topic(GROUPS.name) if isinstance(event := decode(value), GroupRecord))
    return PartitionState(
        partition,
        partitions,
        offsets=_offsets(cold),
        waiting=[event.group_id for event in groups if waits(event)],
        cold=cold,
        resting_max=resting_max,
    )


def _offsets(cold: SqliteColdStore) -> Mapping[str, int]:
    for value in cold.topic(POSITIONS.name):
        event = decode(value)
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
