"""Dead letters as values, and their way back to the fact topics.

Invariant: a letter is redriven once. The fact topic itself remembers: a redriven record carries the letter's place in the
header `claw_letter`, and before anything is appended the partition that it goes to is read from the letter's source on.
So a redrive that was killed half way is simply repeated. Two redrives at the same moment may both append, since fact topics
know no transactions; it has the effect of one: the copies have the bytes, and with them the event id, of one fact, which a
fold takes once; and where both fail again, their letters tell of one failure and are one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from claw.errors import CannotRun
from eventlog.dead_letters import MARK
from eventlog.kafka.admin import begin_offsets, end_offsets
from eventlog.kafka.producer import EventProducer
from eventlog.kafka.reader import LogReader
from eventlog.partitioner import partition_of
from eventlog.records import Outgoing, Place, Position, Record
from eventlog.settings import LogSettings
from schemas.topics import CALLS, DEAD_LETTERS, REWARDS, Topic

FACTS = (CALLS, REWARDS)
LETTER = f"{MARK}letter"
KEPT = tuple(f"{MARK}{name}" for name in ("source_topic", "source_partition", "source_offset", "failed_at", "attempt"))
"""What a letter of the same record, should it fail again, takes over (`eventlog.dead_letters`)."""


@dataclass(frozen=True)
class Letter:
    """One dead letter."""

    record: Record

    @property
    def id(self) -> str:
        """`PARTITION@OFFSET` in the topic of dead letters."""
        return f"{self.record.partition}@{self.record.offset}"

    @cached_property
    def headers(self) -> Mapping[str, str]:
        return {name: value.decode("utf-8", "replace") for name, value in self.record.headers}

    def told(self, name: str) -> str:
        """One of our headers, without its mark; empty when the letter has none."""
        return self.headers.get(f"{MARK}{name}", "")

    @property
    def failure(self) -> tuple[object, ...]:
        """What it tells of: the how manieth failure of which record, told by whom. Without a source: itself."""
        source = self.source
        return (self.id,) if source is None else (source, self.told("attempt"), self.told("reader"))

    @property
    def source(self) -> Position | None:
        """Where the record stood first; None when the letter does not say."""
        partition, offset = self.told("source_partition"), self.told("source_offset")
        if not (self.told("source_topic") and partition.isdecimal() and offset.isdecimal()):
            return None
        return Position(self.told("source_topic"), int(partition), int(offset))


@dataclass(frozen=True, slots=True)
class Way:
    """Where a letter goes. `start`: the copy, if there is one, stands at or after this offset of `place`."""

    letter: Letter
    topic: Topic
    place: Place
    start: int

    def outgoing(self) -> Outgoing:
        """The original bytes and key; the original headers, and where they were."""
        record = self.letter.record
        theirs = [(name, value) for name, value in record.headers if not name.startswith(MARK) or name in KEPT]
        headers = [*theirs, (LETTER, self.letter.id.encode())]
        return Outgoing(topic=self.topic, key=record.key, value=record.value, headers=headers, partition=self.place[1])


def letters(settings: LogSettings, reason: str | None = None, source: str | None = None) -> list[Letter]:
    """All of them in order of partition and offset, of one reason or source topic; of several about one failure the first.

    Raises BrokerUnreachable, TopicMissing.
    """
    with LogReader(settings, [DEAD_LETTERS]) as reader:
        found = sorted((Letter(record) for record in reader.read_to_end()), key=lambda one: one.record.position)
    firsts: dict[tuple[object, ...], Letter] = {}
    for letter in found:
        firsts.setdefault(letter.failure, letter)
    return [one for one in firsts.values() if reason in (None, one.told("reason")) and _is_of(one, source, settings)]


def _is_of(letter: Letter, source: str | None, settings: LogSettings) -> bool:
    return source is None or letter.told("source_topic") in (source, f"{settings.prefix}.{source}")


def named(found: Sequence[Letter], ids: Iterable[str]) -> list[Letter]:
    """The letters of these ids. Raises CannotRun for an id that there is not."""
    by_id = {letter.id: letter for letter in found}
    if missing := [one for one in ids if one not in by_id]:
        raise CannotRun(f"no dead letter {missing[0]}; `claw dlq list` shows their ids (PARTITION@OFFSET)")
    return [by_id[one] for one in ids]


def ways(settings: LogSettings, found: Iterable[Letter]) -> tuple[list[Way], dict[str, str]]:
    """Where each letter goes, and by id why some cannot go anywhere."""
    ends, begins = end_offsets(settings, FACTS), begin_offsets(settings, FACTS)
    topics = {settings.catalogue().name(topic): topic for topic in FACTS}
    going: list[Way] = []
    refused: dict[str, str] = {}
    for letter in found:
        source, key = letter.source, letter.record.key
        if source is None or source.topic not in topics:
            refused[letter.id] = f"its source {letter.told('source_topic') or '(unknown)'} is no fact topic"
            continue
        if size := letter.told("left_out"):
            refused[letter.id] = f"its {size} bytes stand at its source alone, no letter has room for them"
            continue
        partitions = sum(1 for topic, _ in ends if topic == source.topic)
        place = source.topic, source.partition if key is None else partition_of(key, partitions)
        start = source.offset + 1 if place[1] == source.partition else 0
        going.append(Way(letter, topics[source.topic], place, max(start, begins[place])))
    return going, refused


def redriven(settings: LogSettings, going: Sequence[Way]) -> set[str]:
    """Ids of the letters whose copy stands in its fact topic. Reads each partition once, from the first source on."""
    starts: dict[Place, int] = {}
    for way in going:
        starts[way.place] = min(way.start, starts.get(way.place, way.start))
    wanted = {way.letter.id for way in going}
    found: set[str] = set()
    for topic in {way.topic.name: way.topic for way in going}.values():
        name = settings.catalogue().name(topic)
        mine = {place: start for place, start in starts.items() if place[0] == name}
        with LogReader(settings, [topic], partitions=[number for _, number in mine], start=mine) as reader:
            for record in reader.read_to_end():
                found |= {value.decode() for header, value in record.headers if header == LETTER}
    return found & wanted


def redrive(settings: LogSettings, going: Sequence[Way]) -> None:
    """Appends the letters; returns when all are acknowledged. Raises LogError: whoever repeats it does no harm."""
    producer = EventProducer(settings)
    try:
        for future in [producer.produce(way.outgoing()) for way in going]:
            future.result()
    finally:
        producer.close()
