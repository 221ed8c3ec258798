"""Dead letters as values, their way back to the fact topics, and an operator's word that one needs none.

Invariant: a letter is redriven once. The fact topic itself remembers: a redriven record
carries the letter's place in the header `claw_letter`, and before an append
the target partition is read from the letter's source on. So a redrive that was
killed half way is simply repeated. Two concurrent redrives may both append,
since fact topics have no transactions, with the effect of one: both copies have the
bytes, and so the event id, of one fact, which a fold takes once; and if both
fail again, their letters describe one failure and are one.

A dismissed letter is no longer pending and stays in place. The dismissal is
a separate record of the same partition, with headers only.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from msgspec.structs import asdict

from claw_r1.consumers.pool.errors import PoolRefusal
from claw_r1.consumers.pool.event_json import as_plain
from claw_r1.eventlog.dead_letters import MARK
from claw_r1.eventlog.kafka.admin import begin_offsets, end_offsets
from claw_r1.eventlog.kafka.reader import LogReader
from claw_r1.eventlog.partitioner import partition_of
from claw_r1.eventlog.protocols import Producer
from claw_r1.eventlog.records import Outgoing, Place, Position, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.errors import UndecodableRecord
from claw_r1.schemas.json_values import JsonDict
from claw_r1.schemas.topics import DEAD_LETTERS, FACTS, Topic

LETTER = f"{MARK}letter"
DISMISSES, WHO, WHY = f"{MARK}dismisses", f"{MARK}who", f"{MARK}why"
"""The headers of a dismissal."""
KEPT = tuple(f"{MARK}{name}" for name in ("source_topic", "source_partition", "source_offset", "failed_at", "attempt"))
"""The headers that a letter of the same record, should it fail again, takes over
(`claw_r1.eventlog.dead_letters`)."""


@dataclass(frozen=True)
class Letter:
    """One dead letter."""

    record: Record
    dismissed: str = ""
    """The author and reason of its dismissal; empty: not dismissed."""

    @property
    def id(self) -> str:
        """`PARTITION@OFFSET` in the topic of dead letters."""
        return f"{self.record.partition}@{self.record.offset}"

    @cached_property
    def headers(self) -> Mapping[str, str]:
        return {name: value.decode("utf-8", "replace") for name, value in self.record.headers}

    def header(self, name: str) -> str:
        """Returns one of our headers, without its mark in the name; empty when the letter has none."""
        return self.headers.get(f"{MARK}{name}", "")

    @property
    def failure(self) -> tuple[object, ...]:
        """The failure that the letter reports: the record, the number of the attempt, and the reader that failed.

        A letter that does not say where its record stood reports a failure of its own.
        """
        source = self.source
        return (self.id,) if source is None else (source, self.header("attempt"), self.header("reader"))

    @property
    def source(self) -> Position | None:
        """The position where the record stood first; None when the letter does not say."""
        partition, offset = self.header("source_partition"), self.header("source_offset")
        if not (self.header("source_topic") and partition.isdecimal() and offset.isdecimal()):
            return None
        return Position(self.header("source_topic"), int(partition), int(offset))


@dataclass(frozen=True, slots=True)
class RedriveRoute:
    """The target of a letter's redrive. `start`: its copy, if there is one, stands at or after this offset of
    `place`."""

    letter: Letter
    topic: Topic
    place: Place
    start: int

    def outgoing(self) -> Outgoing:
        """The original key, bytes and headers, and a header that names the letter."""
        record = self.letter.record
        theirs = [(name, value) for name, value in record.headers if not name.startswith(MARK) or name in KEPT]
        headers = [*theirs, (LETTER, self.letter.id.encode())]
        return Outgoing(topic=self.topic, key=record.key, value=record.value, headers=headers, partition=self.place[1])


def letters(settings: LogSettings, reason: str | None = None, source: str | None = None) -> list[Letter]:
    """The dead letters in order of partition and offset, of one reason or source topic; the first of each failure.

    Raises BrokerUnreachable, TopicMissing.
    """
    with LogReader(settings, [DEAD_LETTERS]) as reader:
        records = sorted(map(Letter, reader.read_to_end()), key=lambda letter: letter.record.position)
    dismissed = {letter.headers[DISMISSES]: letter for letter in records if DISMISSES in letter.headers}
    firsts: dict[tuple[object, ...], Letter] = {}
    for letter in records:
        if DISMISSES not in letter.headers:
            firsts.setdefault(letter.failure, _judged(letter, dismissed.get(letter.id)))
    return [
        letter
        for letter in firsts.values()
        if reason in (None, letter.header("reason")) and _is_of(letter, source, settings)
    ]


def _judged(letter: Letter, dismissal: Letter | None) -> Letter:
    if dismissal is None:
        return letter
    return replace(letter, dismissed=f"{dismissal.header('who')}: {dismissal.header('why')}")


def dismiss(producer: Producer, waiting: Iterable[Letter], who: str, why: str) -> None:
    """Marks each letter as needing no more attention. Raises LogError."""
    for sent in [producer.produce(_dismissal(letter, who, why)) for letter in waiting]:
        sent.result()


def _dismissal(letter: Letter, who: str, why: str) -> Outgoing:
    headers = [(DISMISSES, letter.id.encode()), (WHO, who.encode()), (WHY, why.encode())]
    return Outgoing(topic=DEAD_LETTERS, key=None, value=None, headers=headers, partition=letter.record.partition)


def _is_of(letter: Letter, source: str | None, settings: LogSettings) -> bool:
    return source is None or letter.header("source_topic") in (source, f"{settings.prefix}.{source}")


def letters_named(candidates: Sequence[Letter], ids: Iterable[str]) -> list[Letter]:
    """The letters of these ids. Raises PoolRefusal for an id that no letter has."""
    by_id = {letter.id: letter for letter in candidates}
    if missing := [name for name in ids if name not in by_id]:
        raise PoolRefusal(f"no dead letter {missing[0]}; `claw dlq list` shows their ids (PARTITION@OFFSET)")
    return [by_id[name] for name in ids]


def routes_of(settings: LogSettings, candidates: Iterable[Letter]) -> tuple[list[RedriveRoute], dict[str, str]]:
    """Returns the route of each letter, and by id the reason why some have none."""
    ends, begins = end_offsets(settings, FACTS), begin_offsets(settings, FACTS)
    topics = {settings.catalogue().name(topic): topic for topic in FACTS}
    routes: list[RedriveRoute] = []
    refused: dict[str, str] = {}
    for letter in candidates:
        source, key = letter.source, letter.record.key
        if source is None or source.topic not in topics:
            refused[letter.id] = f"its source {letter.header('source_topic') or '(unknown)'} is no fact topic"
            continue
        if size := letter.header("left_out"):
            refused[letter.id] = f"its {size} bytes stand at its source alone, no letter has room for them"
            continue
        if broken := attempt(letter).get("undecodable"):
            refused[letter.id] = f"{broken} by this program, too: its copy would be another letter"
            continue
        partitions = sum(1 for topic, _ in ends if topic == source.topic)
        place = source.topic, source.partition if key is None else partition_of(key, partitions)
        start = source.offset + 1 if place[1] == source.partition else 0
        routes.append(RedriveRoute(letter, topics[source.topic], place, max(start, begins[place])))
    return routes, refused


def redriven(settings: LogSettings, routes: Sequence[RedriveRoute]) -> set[str]:
    """Ids of the letters with a copy in their fact topic. Reads each partition once, from the first source on."""
    starts: dict[Place, int] = {}
    for route in routes:
        starts[route.place] = min(route.start, starts.get(route.place, route.start))
    ids = {route.letter.id for route in routes}
    copies: set[str] = set()
    for topic in {route.topic.name: route.topic for route in routes}.values():
        name = settings.catalogue().name(topic)
        partitions = {place: start for place, start in starts.items() if place[0] == name}
        with LogReader(settings, [topic], partitions=[number for _, number in partitions], start=partitions) as reader:
            for record in reader.read_to_end():
                copies |= {value.decode() for header, value in record.headers if header == LETTER}
    return copies & ids


def redrive(producer: Producer, routes: Sequence[RedriveRoute]) -> None:
    """Appends the letters; returns when all are acknowledged. Raises LogError: whoever repeats it does no harm."""
    for future in [producer.produce(route.outgoing()) for route in routes]:
        future.result()


def pending(settings: LogSettings, candidates: Sequence[Letter]) -> list[Letter]:
    """Returns the letters that were not dismissed and have no copy in a fact topic yet."""
    waiting = [letter for letter in candidates if not letter.dismissed]
    routes, _ = routes_of(settings, waiting)
    copied = redriven(settings, routes)
    return [letter for letter in waiting if letter.id not in copied]


def redrive_letters(settings: LogSettings, candidates: Sequence[Letter], producer: Producer | None) -> JsonDict:
    """Redrives pending letters and reports the result of each. producer: None for a dry run. Raises LogError."""
    routes, refused = routes_of(settings, candidates)
    done = redriven(settings, routes) if routes else set()
    fresh = [route for route in routes if route.letter.id not in done]
    if producer is not None:
        redrive(producer, fresh)
    ids = [route.letter.id for route in fresh]
    return {
        "redriven": [] if producer is None else ids,
        "would_redrive": ids if producer is None else [],
        "already": sorted(done),
        "refused": refused,
    }


def summary(letter: Letter) -> JsonDict:
    """A letter without its bytes."""
    source = letter.source
    return {
        "id": letter.id,
        "reason": letter.header("reason"),
        "error": letter.header("error"),
        "reader": letter.header("reader"),
        "source": source and asdict(source),
        "key": None if letter.record.key is None else letter.record.key.decode("utf-8", "replace"),
        "failed_at": letter.header("failed_at"),
        "attempt": letter.header("attempt"),
        "bytes": len(letter.record.value or b""),
        "dismissed": letter.dismissed,
    }


def whole(letter: Letter) -> JsonDict:
    """A letter with headers, value and bytes."""
    value = letter.record.value
    return {
        **summary(letter),
        "headers": dict(letter.headers),
        "value": attempt(letter),
        "hex": None if value is None else value.hex(),
    }


def attempt(letter: Letter) -> JsonDict:
    """The value decoded as an event, or why that cannot be done."""
    try:
        return as_plain(letter.record.event())
    except UndecodableRecord as broken:
        return {"undecodable": broken.reason, "error": str(broken)}
