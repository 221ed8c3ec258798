"""`claw replay`: a range of some topics, from the log onto the screen, into a file or into another topic, at any pace.

Input: any topics of the catalogue, read_committed, by offset; nothing is changed there. A replay of the same range gives
the same records in the same order.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from claw.data.replay_filter import filter_of
from claw.data.replay_range import bound, merged, paced
from claw.data.replay_target import into_file, into_topic, is_file, target_topic
from claw.errors import CannotRun
from claw.show.log import log_for_reading
from claw.show.rendering import as_plain, one_line
from eventlog.errors import LogError
from eventlog.kafka.reader import LogReader
from eventlog.records import Record
from eventlog.settings import LogSettings
from schemas.errors import UndecodableRecord
from schemas.topics import CALLS, REWARDS, TOPICS, Topic

FACTS = (CALLS.name, REWARDS.name)
"""What everything else is made of: replayed where nobody names a topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """What a person asked for. speed: 0 is as fast as possible, 1 the pace at which the records were written."""

    topics: Sequence[str] = FACTS
    start: str = "beginning"
    end: str = "end"
    filters: Sequence[str] = ()
    limit: int | None = None
    speed: float = 0.0
    into: str | None = None
    force: bool = False
    prefix: str = "claw"


def run_replay(asked: ReplaySettings, *, as_json: bool) -> int:
    """Replays; returns the exit code. Raises CannotRun for an unknown topic, bound or filter, or a target that is refused."""
    wanted = [named(name, asked.prefix) for name in asked.topics]
    topics = list({topic.name: topic for topic in wanted}.values())
    if asked.into is not None:
        _check_target(topics, asked.into)
    with log_for_reading(asked.prefix) as settings:
        try:
            found = _selected(settings, topics, asked)
            if asked.into is None:
                return _print(found, as_json=as_json)
            count = _into(settings, found, asked.into, force=asked.force)
        except LogError as broken:
            raise CannotRun(str(broken)) from broken
    names = [topic.name for topic in topics]
    told = {"topics": names, "into": asked.into, "records": count}
    print(orjson.dumps(told).decode() if as_json else f"{count} records of {' and '.join(names)} into {asked.into}")
    return 0


def _check_target(topics: Sequence[Topic], target: str) -> None:
    """A topic has records of its own types: those of another one would be poison there."""
    if len(topics) > 1 and not is_file(target):
        names = ", ".join(topic.name for topic in topics)
        raise CannotRun(f"--into {target}: a topic takes the records of one; say which --topic, of {names}")


def _selected(settings: LogSettings, topics: Sequence[Topic], asked: ReplaySettings) -> Iterator[Record]:
    """Bounds and filters are checked before the first record is read."""
    holds = filter_of(asked.filters)
    starts, ends = bound(settings, topics, asked.start), bound(settings, topics, asked.end)
    found = (record for record in merged(settings, topics, starts, ends) if holds(record))
    return paced(islice(found, asked.limit), asked.speed)


def _print(found: Iterator[Record], *, as_json: bool) -> int:
    for record in found:
        print(json_line(record) if as_json else text_line(record))
        sys.stdout.flush()
    return 0


def _into(settings: LogSettings, found: Iterator[Record], target: str, *, force: bool) -> int:
    if is_file(target):
        return into_file(found, Path(target), json_line)
    return into_topic(found, *target_topic(settings, target, force=force))


def named(name: str, prefix: str) -> Topic:
    """The catalogue's topic of that name, with or without the prefix. Raises CannotRun that lists the names."""
    wanted = name.removeprefix(f"{prefix}.")
    for topic in TOPICS:
        if topic.name == wanted:
            return topic
    raise CannotRun(f"no topic {name!r} in the catalogue; there are: {', '.join(topic.name for topic in TOPICS)}")


def records(settings: LogSettings, topic: Topic) -> Iterator[Record]:
    """Every record up to the ends at the moment of the call, partition by partition as they come."""
    with closing(LogReader(settings, [topic])) as reader:
        yield from reader.read_to_end()


def json_line(record: Record) -> str:
    place = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
    }
    return orjson.dumps({**place, "key": _text(record.key), "event": _event(record)}).decode()


def text_line(record: Record) -> str:
    place = f"{record.topic}[{record.partition}]@{record.offset}"
    if record.value is None:
        return f"{place:<36} tombstone {_text(record.key)}"
    try:
        return f"{place:<36} {one_line(record.event())}"
    except UndecodableRecord as broken:
        return f"{place:<36} undecodable ({broken.reason}) {len(record.value)} bytes, key {_text(record.key)}"


def _event(record: Record) -> dict[str, Any] | None:  # JSON
    if record.value is None:
        return None
    try:
        return as_plain(record.event())
    except UndecodableRecord as broken:
        return {
            "undecodable": broken.reason,
            "hex": record.value.hex(),
            "headers": {k: _text(v) for k, v in record.headers},
        }


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")
