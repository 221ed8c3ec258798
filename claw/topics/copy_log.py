"""`claw topics copy`: a log copied to another prefix or another cluster, with as many partitions or more, and its pool made there.

Input: the facts, verdicts, keys, weights and plans of a prefix, by position; output:
the same at the other place, keys, bytes and headers as they are. A group's facts stay
in their order, for all of them stand in one partition before and after, and its kept
verdicts stand there, too. Plans name facts by position, which is translated. Delivery: exactly once, for the offsets read are
part of the transaction that writes; whoever is killed and started again goes on, and
whoever comes later copies what came since. Workers and dead letters are left behind:
the ones report anew, the others name records by where they stood.

How far the old log is read stands in the new one, under the new one's names: a broker
keeps offsets of topics that it has.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import sha256
from math import gcd

from msgspec.structs import replace

from claw_r1.claw.answers import Answer
from claw_r1.claw.broker_log import log_for_reading
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.notice import Progress
from claw_r1.eventlog.errors import HistoryCut
from claw_r1.eventlog.kafka.admin import as_on_broker, begin_offsets, create_topics, end_offsets, topics_id
from claw_r1.eventlog.kafka.reader import committed_offsets, read_topics, stream_ranges
from claw_r1.eventlog.kafka.transactions import TransactionalProducer
from claw_r1.eventlog.partitioner import partition_of
from claw_r1.eventlog.records import Outgoing, Place, Record, readable
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.events import BatchAssembled, FactPosition, PlannedStep
from claw_r1.schemas.topics import BATCHES, CALLS, FACTS, KEYS, REWARDS, VERDICTS, WEIGHTS, Topic
from claw_r1.streams.rebuild import rebuild

COPIED = (CALLS, REWARDS, VERDICTS, KEYS, WEIGHTS, BATCHES)
"""Plans come last: where the facts stand that they name is known by then."""
RECORDS = 2000
"""In one transaction: what a kill repeats."""
Copy = tuple[Record, Sequence[Outgoing]]
"""A record, and what is written of it."""
Ranges = Mapping[Place, tuple[int, int]]
Translation = Mapping[tuple[int, int], FactPosition]
"""Partition and offset of a call in the old log, and its place in the new one."""


@dataclass
class LogCopy:
    """A copy under way."""

    source: LogSettings
    target: LogSettings
    records: dict[str, int] = field(default_factory=dict)
    """Copied by this process, by topic."""
    left_out: set[str] = field(default_factory=set)
    """Runs with a plan that names a call which the old log does not hold any more."""

    @cached_property
    def group(self) -> str:
        """The consumer group that is as far as the copy is, and the transactional id that writes it."""
        origin = sha256(topics_id(self.source, COPIED).encode()).hexdigest()[:12]
        return f"{self.target.prefix}.copy.{origin}"

    def run(self) -> None:
        """Copies all that is there. Raises CannotRun, HistoryCut, Fenced where another one copies."""
        with closing(TransactionalProducer(self.target, self.group, positions=False, group_id=self.group)) as producer:
            producer.open()  # ends what a killed one left open, so that the group's offsets are known
            at = self._at()
            producer.commit([], at)  # of quiet places, too: Kafka drops each offset so long after its own last commit
            # Where plans end first: what a plan of a run that goes on names stood in the log before it.
            ranges = {topic.name: self._ranges(topic, at) for topic in reversed(COPIED)}
            for topic in COPIED:
                mine = ranges[topic.name]
                self.records[topic.name] = self._write(producer, topic, self._copies(topic, mine), size(mine))

    def _copies(self, topic: Topic, ranges: Ranges) -> Iterator[Copy]:
        if topic is BATCHES:
            self.left_out = self._left_out_before(ranges)
            return self._plans(ranges)
        old, new = self.source.partitions, self.target.partitions
        return ((record, as_it_is(topic, record, old, new)) for record in stream_ranges(self.source, ranges))

    def _at(self) -> Mapping[Place, int]:
        """Finds out how far the old log is copied, by the places of the new one. Raises CannotRun."""
        kept = committed_offsets(self.target, self.group, COPIED, range(self.source.partitions))
        at = {place: offset or 0 for place, offset in kept.items()}
        if 0 < len(gone := {place for place, offset in kept.items() if offset is None}) < len(kept):
            self._refuse_gaps(gone)
        facts = {self.target.catalogue().name(topic) for topic in FACTS}
        # Read, since ends count what a killed one has written, which is aborted.
        if not any(at[place] for place in at if place[0] in facts) and next(read_topics(self.target, FACTS), None):
            raise CannotRun(f"{self.target.prefix} holds facts of its own: name an unused prefix")
        return at

    def _refuse_gaps(self, gone: Set[Place]) -> None:
        """A pass commits every place, so that one without an offset had one, but where nothing was ever written."""
        for topic in COPIED:
            name = self.target.catalogue().name(topic)
            for (_, partition), end in end_offsets(self.source, [topic]).items():
                if end and (name, partition) in gone:
                    raise CannotRun(
                        f"how far {name}[{partition}] was copied is not known any more, since the pass before is longer ago than "
                        "offsets.retention.minutes of the broker, or claw 0.1 made it: name an unused prefix, and copy it all"
                    )

    def _ranges(self, topic: Topic, at: Mapping[Place, int]) -> Ranges:
        """Finds out what is not copied yet, by partition. at: places of the new log."""
        name, ranges = self.target.catalogue().name(topic), {}
        begins, ends = begin_offsets(self.source, [topic]), end_offsets(self.source, [topic])
        for place, end in ends.items():
            start, begin = at[name, place[1]], begins[place]
            if topic in FACTS and start < begin:
                raise HistoryCut(f"retention cut the facts that {place[0]}[{place[1]}] held before {begin}")
            ranges[place] = (max(start, begin), end)
        return ranges

    def _write(self, producer: TransactionalProducer, topic: Topic, copies: Iterable[Copy], total: int) -> int:
        progress, count = Progress(f"claw topics copy: {topic.name}: {{done}} of {{total}} records"), 0
        batch: list[Copy] = []
        name = self.target.catalogue().name(topic)
        for copy in copies:
            batch.append(copy)
            if len(batch) == RECORDS:
                count += commit(producer, batch, name)
                progress(count, total)
        return count + commit(producer, batch, name)

    def _plans(self, ranges: Ranges) -> Iterator[Copy]:
        """Plans with their calls' new places; nothing of a run that has a plan which cannot be translated."""
        named: dict[str, set[tuple[int, int]]] = {}
        for event in readable(stream_ranges(self.source, ranges)):
            if isinstance(event, BatchAssembled):
                named.setdefault(event.run_id, set()).update(places_in(event))
        places = self._translation(set().union(*named.values()))
        self.left_out |= {run for run, mine in named.items() if mine - places.keys()}
        for record in stream_ranges(self.source, ranges):
            yield record, self._plan(record, places)

    def _left_out_before(self, ranges: Ranges) -> set[str]:
        """Finds the runs that were read and of which nothing was copied."""
        begins = begin_offsets(self.source, [BATCHES])
        read = {place: (begins[place], start) for place, (start, _) in ranges.items() if begins[place] < start}
        copied = {record.key for record in read_topics(self.target, [BATCHES])} if read else set()
        events = readable(record for record in stream_ranges(self.source, read) if record.key not in copied)
        return {event.run_id for event in events if isinstance(event, BatchAssembled)}

    def _plan(self, record: Record, places: Translation) -> Sequence[Outgoing]:
        event = next(readable([record]), None)
        if getattr(event, "run_id", None) in self.left_out:
            return ()
        if isinstance(event, BatchAssembled) and record.key is not None:
            return (Outgoing.of(BATCHES, record.key, translated(event, places)),)
        return as_it_is(BATCHES, record, self.source.partitions, self.target.partitions)

    def _translation(self, places: Set[tuple[int, int]]) -> Translation:
        """A fact is known again by its event's id, of which copies count from the first on, as in the folds."""
        if not places:
            return {}
        ids = {
            event_id: (record.partition, record.offset)
            for record in read_topics(self.source, [CALLS])
            if (record.partition, record.offset) in places and (event_id := id_of(record))
        }
        new: dict[tuple[int, int], FactPosition] = {}
        for record in read_topics(self.target, [CALLS]):
            if (place := ids.get(id_of(record))) and place not in new:
                new[place] = FactPosition(topic=record.topic, partition=record.partition, offset=record.offset)
        return new


def commit(producer: TransactionalProducer, batch: list[Copy], name: str) -> int:
    """Writes a batch and how far it was read in one transaction, and empties it;
    how many were copied. name: the new topic's."""
    items = [item for _, copies in batch for item in copies]
    producer.commit(items, {(name, record.partition): record.offset + 1 for record, _ in batch})
    count = sum(bool(copies) for _, copies in batch)
    batch.clear()
    return count


def as_it_is(topic: Topic, record: Record, old: int, new: int) -> Sequence[Outgoing]:
    """Copies a record of a log of `old` partitions into one of `new`."""
    copied = partial(Outgoing, topic=topic, key=record.key, value=record.value, headers=record.headers)
    return [copied(partition=place) for place in partitions_of_copy(topic, record, old, new)]


def partitions_of_copy(topic: Topic, record: Record, old: int, new: int) -> Sequence[int]:
    """Finds where a copy belongs."""
    return _beside_groups(record.partition, old, new) if topic is VERDICTS else (_by_key(record, old, new),)


def _beside_groups(at: int, old: int, new: int) -> Sequence[int]:
    """Each partition to which a group of the old one can come: any of them may ask for the verdict.
    Hashes that are equal modulo `old` are so modulo a divisor of both."""
    divisor = gcd(old, new)
    return range(at % divisor, new, divisor)


def _by_key(record: Record, old: int, new: int) -> int:
    """The partition of the key. A fact that was refused, for it stood in another, stands in a wrong one again."""
    at = record.partition
    if record.key is None:
        return at
    own = partition_of(record.key, new)
    is_refused = at != partition_of(record.key, old)
    return (at if at != own else (at + 1) % new) if is_refused else own


def size(ranges: Ranges) -> int:
    """Records at most."""
    return sum(end - start for start, end in ranges.values())


def id_of(record: Record) -> bytes:
    """The event's id, as its header says; empty where it has none."""
    return dict(record.headers).get("ce_id", b"")


def places_in(plan: BatchAssembled) -> Iterator[tuple[int, int]]:
    """Names the partition and the offset of each call of a plan."""
    return ((at.partition, at.offset) for row in plan.trajectories for at in (step.position for step in row.steps))


def translated(plan: BatchAssembled, places: Translation) -> BatchAssembled:
    """The plan, in the new log."""

    def moved(step: PlannedStep) -> PlannedStep:
        return replace(step, position=places[step.position.partition, step.position.offset])

    rows = (replace(row, steps=tuple(map(moved, row.steps))) for row in plan.trajectories)
    return replace(plan, trajectories=tuple(rows))


def run_copy(
    prefix: str, to: str, partitions: int | None = None, into: str = "", replication: int | None = None
) -> Answer:
    """Copies, and makes the pool. partitions: None for as many. into: `host:port`
    of another cluster. Raises CannotRun, HistoryCut."""
    with log_for_reading(prefix) as log:
        source = as_on_broker(log)
        place = {
            "prefix": to,
            "partitions": partitions or source.partitions,
            "bootstrap_servers": into or source.bootstrap_servers,
            "replication": replication or source.replication,
        }
        target = _target(source, source.model_copy(update=place))
        copy = LogCopy(source, target)
        copy.run()
        pool = Progress("claw topics copy: pool: {done} of {total} facts")
        rows = rebuild(target, end_offsets(target, FACTS), pool).rows
    answer = {"to": to, "partitions": target.partitions, "records": copy.records, "left_out": sorted(copy.left_out)}
    return Answer({**answer, "rows": rows}, as_text(copy, rows))


def _target(source: LogSettings, target: LogSettings) -> LogSettings:
    """The new log, with its topics."""
    if not target.prefix or (target.prefix, target.bootstrap_servers) == (
        source.prefix,
        source.bootstrap_servers,
    ):
        raise CannotRun("claw topics copy takes --to PREFIX, of topics that are made for it")
    if target.partitions < source.partitions:
        raise CannotRun(f"{source.prefix} has {source.partitions} partitions: --partitions takes as many, or more")
    create_topics(target)
    if (there := as_on_broker(target).partitions) != target.partitions:
        raise CannotRun(f"{target.prefix} was begun with {there} partitions: go on with --partitions {there}")
    return target


def as_text(copy: LogCopy, rows: int) -> Iterator[str]:
    """Tells a person what was copied, what was not, and what to do next."""
    yield (
        ", ".join(f"{count} {name}" for name, count in copy.records.items()) + f" copied, {rows} rows of the pool made"
    )
    for run in sorted(copy.left_out):
        yield f"run {run} is left out: a plan of it names a call that the log does not hold"
    source, target = copy.source, copy.target
    broker = f"KAFKA_BOOTSTRAP_SERVERS={target.bootstrap_servers} "
    there, against = (
        ("", source.prefix)
        if source.bootstrap_servers == target.bootstrap_servers
        else (broker, f"{source.prefix}@{source.bootstrap_servers}")
    )
    yield (
        f"cut over: stop all that writes to {source.prefix}, streams last, "
        "say this once more (it copies what came since), check it by "
        f"`{there}claw verify --prefix {target.prefix} --against {against}`, "
        "and start all with "
        f"{there}CLAW_LOG_PREFIX={target.prefix} CLAW_LOG_PARTITIONS={target.partitions}"
    )
