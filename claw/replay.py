"""`claw replay`: a topic's records, read from the log and printed. Input: any topic; delivery: read_committed; it writes nothing."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import islice
from typing import Any, Literal

import orjson

from claw.errors import CannotRun
from claw.reading import log_for_reading
from claw.rendering import as_plain, one_line
from eventlog.admin import end_offsets
from eventlog.reader import LogReader
from eventlog.records import Record
from eventlog.settings import LogSettings
from schemas.errors import UndecodableRecord
from schemas.topics import TOPICS, Topic


def replay_topic(name: str, *, prefix: str, limit: int | None, start: str, as_json: bool) -> int:
    """Prints the records; returns the exit code. Raises CannotRun for an unknown topic or start."""
    topic = named(name, prefix)
    with log_for_reading(prefix) as settings:
        for record in islice(records(settings, topic, start), limit):
            print(json_line(record) if as_json else text_line(record))
            sys.stdout.flush()
    return 0


def named(name: str, prefix: str) -> Topic:
    """The catalogue's topic of that name, with or without the prefix. Raises CannotRun that lists the names."""
    wanted = name.removeprefix(f"{prefix}.")
    for topic in TOPICS:
        if topic.name == wanted:
            return topic
    raise CannotRun(f"no topic {name!r} in the catalogue; there are: {', '.join(topic.name for topic in TOPICS)}")


def records(settings: LogSettings, topic: Topic, start: str = "beginning") -> Iterator[Record]:
    """Every record up to the ends at the moment of the call, partition by partition as they come."""
    with closing(LogReader(settings, [topic], start=start_of(settings, topic, start))) as reader:
        yield from reader.read_to_end()


def start_of(settings: LogSettings, topic: Topic, start: str) -> Literal["beginning"] | Mapping[tuple[str, int], int]:
    """`beginning`, or one offset for every partition (cut at its end). Raises CannotRun for anything else."""
    if start == "beginning":
        return "beginning"
    if not start.isdecimal():
        raise CannotRun(f"--from takes `beginning` or an offset, not {start!r}")
    return {place: min(int(start), end) for place, end in end_offsets(settings, [topic]).items()}


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
            "hex": record.value[:64].hex(),
            "headers": {k: _text(v) for k, v in record.headers},
        }


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")
