"""The takeover of a partition: its state in the pool, and facts that were acknowledged but never folded.

Invariant: called only after the former owner is fenced, so what is read here is final. State comes from the pool's own
records, put into a local cold store and made into states when facts ask for them. A position behind the group's offset
is healed before the first event flows: Faust was seen to acknowledge records that it never delivered.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import structlog

from claw_r1.datapool import FOLD_VERSION
from claw_r1.datapool.fold.readiness import is_evicted
from claw_r1.eventlog.kafka.reader import committed_offsets, read_range
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.events import GroupRecord, StreamPosition
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import FACTS, GROUPS, POSITIONS
from claw_r1.streams.cold_store import SqliteColdStore
from claw_r1.streams.errors import FoldVersionMismatch
from claw_r1.streams.partition.groups import RESTING_MAX, stored_row
from claw_r1.streams.partition.state import PartitionState
from claw_r1.streams.reactors import waits
from claw_r1.streams.standby import LOCK_PATIENCE_S, PoolCopy, opened, read_on

log = structlog.get_logger()

NO_COPIES: Mapping[int, PoolCopy] = MappingProxyType({})


def recover(
    settings: LogSettings, partitions: Sequence[int], copies: Mapping[int, PoolCopy] = NO_COPIES
) -> dict[int, PartitionState]:
    """States as the pool has them. copies: of some partitions, to continue from; others continue from files. Raises
    BrokerUnreachable, TopicMissing, FoldVersionMismatch, RowOfAnotherVersion, StoreFailed."""
    return states_of(settings, pool_copies(settings, partitions, copies))


def states_of(settings: LogSettings, copies: Mapping[int, PoolCopy]) -> dict[int, PartitionState]:
    """States as these copies have them. Raises as `state_of`."""
    return {partition: state_of(partition, settings.partitions, copy.store) for partition, copy in copies.items()}


def pool_copies(
    settings: LogSettings, partitions: Sequence[int], copies: Mapping[int, PoolCopy]
) -> dict[int, PoolCopy]:
    """Copies of these partitions, read to the end of the pool. As `recover`."""
    others = [partition for partition in partitions if partition not in copies]
    held = {**copies, **opened(settings, others, LOCK_PATIENCE_S)}
    rows = read_on(settings, held)
    if others:
        log.info("streams_pool_read", partitions=sorted(held), rows=rows)
    for copy in held.values():
        copy.caught_up()
    return held


def state_of(
    partition: int, partitions: int, cold: SqliteColdStore, *, resting_max: int = RESTING_MAX
) -> PartitionState:
    """The state that these rows of the pool are the records of. Raises FoldVersionMismatch, RowOfAnotherVersion, StoreFailed."""
    offsets = _offsets(cold)  # first: another version of the folds explains rows that cannot be read
    waiting: list[str] = []
    stubs: list[str] = []
    for value in cold.topic(GROUPS.name):
        event = stored_row(value)
        if not isinstance(event, GroupRecord):
            continue
        if is_evicted(event):
            stubs.append(event.group_id)
        elif waits(event):
            waiting.append(event.group_id)
    for group_id in stubs:  # or retention would look at each of them first
        cold.touch(GROUPS.name, group_key(group_id), None)
    return PartitionState(
        partition,
        partitions,
        offsets=offsets,
        waiting=waiting,
        cold=cold,
        resting_max=resting_max,
    )


def _offsets(cold: SqliteColdStore) -> Mapping[str, int]:
    for value in cold.topic(POSITIONS.name):
        event = stored_row(value)
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
