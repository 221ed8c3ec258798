"""Folds a generation of the pool again from the facts up to an offset vector.

Input: claw.calls and claw.rewards, by position; output: the pool and the positions of one generation, one transaction
per partition and `flush_facts`. Ordering, key and fold are those of the streams: it is their partition state. Delivery:
a killed and restarted rebuild resumes at the generation's own positions.

Invariant: nothing else is written. A poison record is counted, its dead letter exists since the record was new; there
are no reactors, their decisions are among the facts. The transactional ids are those of the generation's streams,
so both can never write at once: the older one is fenced.
"""

import gc
import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from claw_r1.datapool import FOLD_VERSION
from claw_r1.eventlog.errors import HistoryCut, LogError
from claw_r1.eventlog.kafka.admin import begin_offsets, create_topics, end_offsets
from claw_r1.eventlog.kafka.reader import LogReader, commit_offsets, stream_ranges
from claw_r1.eventlog.kafka.transactions import TransactionalProducer
from claw_r1.eventlog.records import Outgoing, Place, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.events import StreamPosition
from claw_r1.schemas.topics import DEAD_LETTERS, FACTS, POSITIONS
from claw_r1.streams.errors import PastTarget
from claw_r1.streams.ownership import group_name, open_producer
from claw_r1.streams.partition.state import PartitionState
from claw_r1.streams.recovery import recover
from claw_r1.streams.standby import PoolCopy

FLUSH_FACTS = 5000
"""Facts of one partition in one transaction: the loss by a kill, and the bound on tokens in memory."""
Vector = Mapping[Place, int]
"""Next offset of every partition of the fact topics."""
RebuildProgress = Callable[[int, int], None]
"""Called with how many facts this process has read, and how many it has to read in all."""


@dataclass(slots=True)
class Rebuilt:
    """The result of a rebuild, and the state of the generation: the pool at `to`, by this fold version."""

    generation: int
    to: Vector
    fold_version: int = FOLD_VERSION
    outcomes: Counter[str] = field(default_factory=Counter)
    """Records read by this process: folded, poison, fold_bug."""
    rows: int = 0
    """Pool records written by this process, tombstones included."""

    def manifest(self) -> dict[str, object]:
        """Returns the manifest that names this generation for good: offsets, never times."""
        topics = sorted({topic for topic, _ in self.to})
        offsets = {topic: [self.to[place] for place in sorted(self.to) if place[0] == topic] for topic in topics}
        return {"generation": self.generation, "fold_version": self.fold_version, "offsets": offsets}


def rebuild(settings: LogSettings, to: Vector, progress: RebuildProgress, flush_facts: int = FLUSH_FACTS) -> Rebuilt:
    """Makes generation `settings.generation` the pool at `to`, going on where it stands.

    settings: with the partition count of the broker. Raises HistoryCut that names every missing range, PastTarget,
    FoldVersionMismatch (choose another generation), Fenced (streams of the generation started), BrokerUnreachable.
    """
    create_topics(settings)
    at = positions(settings, to)
    check(settings, at, to)
    done = Rebuilt(settings.generation, dict(to))
    total = sum(to[place] - at[place] for place in to)
    for partition in sorted({partition for topic, partition in to if at[topic, partition] < to[topic, partition]}):
        with _no_collector():
            for _ in _flushes(settings, partition, to, done, flush_facts):
                progress(done.outcomes.total(), total)
    # Streams of this generation begin here. Without it they would read from the beginning and find nothing new.
    commit_offsets(settings, group_name(settings.catalogue()), to)
    return done


def positions(settings: LogSettings, to: Vector) -> dict[Place, int]:
    """Reads how far the generation is, for each place of `to`."""
    at = dict.fromkeys(to, 0)
    with LogReader(settings, [POSITIONS]) as reader:
        for record in reader.read_to_end():
            event = record.event()
            if isinstance(event, StreamPosition):
                at |= {(topic, event.partition): offset for topic, offset in event.offsets.items()}
    return at


def check(settings: LogSettings, at: Vector, to: Vector) -> None:
    """Raises PastTarget, HistoryCut or LogError when the way from `at` to `to` cannot be gone."""
    begins, ends = begin_offsets(settings, FACTS), end_offsets(settings, FACTS)
    if to.keys() != ends.keys():
        raise LogError("the offsets are of other topics or partitions than this log has")
    if past := [place for place in sorted(to) if at[place] > to[place]]:
        raise PastTarget(f"generation {settings.generation} is past the offsets asked for: {_range_list(past, to, at)}")
    if beyond := [place for place in sorted(to) if to[place] > ends[place]]:
        raise LogError(f"the log does not reach the offsets asked for: {_range_list(beyond, ends, to)}")
    if cut := [place for place in sorted(to) if at[place] < min(begins[place], to[place])]:
        missing = {place: min(begins[place], to[place]) for place in cut}
        raise HistoryCut(f"retention cut the facts; the log no longer holds {_range_list(cut, at, missing)}")


def _range_list(places: list[Place], starts: Vector, ends: Vector) -> str:
    return ", ".join(f"{topic}[{number}] {starts[topic, number]}..{ends[topic, number]}" for topic, number in places)


@contextmanager
def _no_collector() -> Iterator[None]:
    """Facts and rows have no cycles; searching all of them for some, over and over, costs a sixth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _flushes(settings: LogSettings, partition: int, to: Vector, done: Rebuilt, flush_facts: int) -> Iterator[None]:
    """Folds one partition; yields after each flush. Fence first, only then read the state: as the streams do."""
    targets = {topic: offset for (topic, number), offset in to.items() if number == partition}
    with (
        closing(open_producer(settings, partition)) as producer,
        closing(recover(settings, [partition], {partition: PoolCopy()})[partition]) as state,
    ):
        for number, record in enumerate(_facts(settings, state, targets), 1):
            done.outcomes[state.apply(record)] += 1
            if number % flush_facts == 0:
                _flush(producer, state, done)
                yield
        for topic, offset in targets.items():
            state.advance(topic, offset)  # what follows the last record is none
        if state.pending:
            _flush(producer, state, done)
            yield


def _facts(settings: LogSettings, state: PartitionState, targets: Mapping[str, int]) -> Iterator[Record]:
    """Both topics side by side in time, roughly: else the rewards of a group would come long after its calls, when the
    group is put away. No record depends on it."""
    ranges = {(topic, state.partition): (state.expected(topic), end) for topic, end in targets.items()}
    streams = [stream_ranges(settings, {place: ends}) for place, ends in ranges.items()]
    return heapq.merge(*streams, key=lambda record: record.timestamp_ms)


def _flush(producer: TransactionalProducer, state: PartitionState, done: Rebuilt) -> None:
    batch: list[Outgoing] = [item for item in state.take_batch(now_us()) if item.topic is not DEAD_LETTERS]
    producer.commit(batch)
    done.rows += len(batch) - 1  # the position is no row
