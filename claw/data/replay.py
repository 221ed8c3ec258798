"""`claw replay`: a range of some topics, from the log onto the screen, into a file or into another topic, at any pace.

Input: any topics of the catalogue, read_committed, by offset; nothing is changed there. A replay of the same range gives
the same records in the same order.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from claw_r1.claw.answers import Answer
from claw_r1.claw.broker_log import log_for_reading
from claw_r1.claw.data.replay_filter import Filter, filter_of
from claw_r1.claw.data.replay_range import bound, merged, paced
from claw_r1.claw.data.replay_target import into_file, into_topic, is_file, target_topic
from claw_r1.claw.data.settings import ReplaySettings
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.notice import notice
from claw_r1.claw.rendering import one_line
from claw_r1.consumers.pool.event_json import as_plain
from claw_r1.eventlog.records import Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.errors import UndecodableRecord
from claw_r1.schemas.json_values import JsonDict
from claw_r1.schemas.topics import FACTS, TOPICS, Topic

"""The topics that everything else is made of: replayed where nobody names a topic."""


def run_replay(settings: ReplaySettings) -> Iterator[Answer]:
    """Replays, and yields each record that goes nowhere else. Raises CannotRun for an unknown topic, bound or filter,
    or a target that is refused."""
    catalogued = (topic_of(name, settings.prefix) for name in settings.topics or [topic.name for topic in FACTS])
    topics = list({topic.name: topic for topic in catalogued}.values())
    holds = filter_of(settings.filters or (), topics)
    if settings.into is not None:
        _check_target(topics, settings.into)
    with log_for_reading(settings.prefix) as log:
        yield from _replay(log, topics, settings, holds)


def _replay(log: LogSettings, topics: Sequence[Topic], settings: ReplaySettings, holds: Filter) -> Iterator[Answer]:
    selected = _selected(log, topics, settings, holds)
    sources = " and ".join(topic.name for topic in topics)
    if settings.into is None:
        count = 0
        for count, record in enumerate(selected, 1):  # noqa: B007 - the last count is the result
            yield Answer(partial(as_object, record), map(text_line, [record]))  # nobody pays for what others read
        if not count:
            conditions = f" meets {' and '.join(settings.filters)}" if settings.filters else " is there"
            notice(
                f"no record of {sources} from {settings.start} to {settings.end}{conditions}; "
                "`claw topics describe` counts what each topic holds"
            )
        return
    count = _into(log, selected, settings.into, force=settings.force)
    summary = {"topics": [topic.name for topic in topics], "into": settings.into, "records": count}
    yield Answer(summary, f"{count} records of {sources} into {settings.into}")


def _check_target(topics: Sequence[Topic], target: str) -> None:
    """A topic has records of its own types: those of another one would be poison there."""
    if len(topics) > 1 and not is_file(target):
        names = ", ".join(topic.name for topic in topics)
        raise CannotRun(f"--into {target}: a topic takes the records of one; say which --topic, of {names}")


def _selected(log: LogSettings, topics: Sequence[Topic], settings: ReplaySettings, holds: Filter) -> Iterator[Record]:
    """Bounds are checked before the first record is read."""
    starts, ends = bound(log, topics, settings.start), bound(log, topics, settings.end)
    records = (record for record in merged(log, topics, starts, ends) if holds(record))
    return paced(islice(records, settings.limit), settings.speed)


def _into(log: LogSettings, records: Iterator[Record], target: str, *, force: bool) -> int:
    if is_file(target):
        return into_file(records, Path(target), as_object)
    return into_topic(records, *target_topic(log, target, force=force))


def topic_of(name: str, prefix: str) -> Topic:
    """The catalogue's topic of that name, with or without the prefix. Raises CannotRun that lists the names."""
    bare = name.removeprefix(f"{prefix}.")
    for topic in TOPICS:
        if topic.name == bare:
            return topic
    raise CannotRun(f"no topic {name!r} in the catalogue; there are: {', '.join(topic.name for topic in TOPICS)}")


def as_object(record: Record) -> JsonDict:
    place = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
    }
    return {**place, "key": _text(record.key), "event": _event(record)}


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
