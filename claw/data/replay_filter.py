"""`--filter NAME=VALUE`: which records of a topic are meant. Pure; several filters must all hold."""

from collections.abc import Callable, Iterable, Sequence
from typing import get_type_hints

from claw_r1.claw.errors import CannotRun
from claw_r1.eventlog.dead_letters import MARK
from claw_r1.eventlog.records import Record
from claw_r1.schemas import codec
from claw_r1.schemas.errors import UndecodableRecord
from claw_r1.schemas.events import EVENT_TYPES, Envelope
from claw_r1.schemas.topics import TOPICS, Topic

Filter = Callable[[Record], bool]
SHORT_NAMES = {
    "group": "group_id",
    "trajectory": "trajectory_id",
    "call": "call_id",
    "run": "run_id",
    "worker": "worker_id",
}
RECORD_NAMES = {"type", "key", "partition"}
ANY_HEADER = "header:"
HEADERS = (ANY_HEADER, "ce_", MARK, "traceparent", "content-type")
"""The prefixes of header names; one that is not ours is written `header:NAME`."""


def filter_of(texts: Iterable[str], topics: Sequence[Topic] = TOPICS) -> Filter:
    """`type=CallCaptured`, `key=…`, `partition=…`, a field of the topics' events (`group=…`, `channel=…`), or a header.

    Raises CannotRun for a text without `=`, and for a name that no record of the topics has.
    """
    names = field_names(topics)
    conditions = [_condition(text, names) for text in texts]
    return lambda record: all(_holds(record, name, value) for name, value in conditions)


def field_names(topics: Iterable[Topic]) -> set[str]:
    """The fields of every event that may stand on the topics, and of their envelope."""
    types = {name for topic in topics for name in topic.records or EVENT_TYPES}
    return {field for cls in (Envelope, *map(EVENT_TYPES.__getitem__, types)) for field in get_type_hints(cls)}


def _condition(text: str, names: set[str]) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise CannotRun(f"--filter takes NAME=VALUE, for example type=CallCaptured or group=g1, not {text!r}")
    field = SHORT_NAMES.get(name, name)
    if field not in names | RECORD_NAMES and not name.startswith(HEADERS):
        choices = ", ".join([*sorted(RECORD_NAMES), *SHORT_NAMES, *sorted(names - {*SHORT_NAMES.values()})])
        raise CannotRun(f"--filter {text}: no record has a {name}; there are {choices}, and header:NAME for any header")
    return field, value


def _holds(record: Record, name: str, value: str) -> bool:
    match name:
        case "type":
            return _type(record) == value
        case "key":
            return record.key is not None and record.key.decode("utf-8", "replace") == value
        case "partition":
            return str(record.partition) == value
    if name.startswith(HEADERS):
        return value in _headers(record, name.removeprefix(ANY_HEADER))
    return _field(record, name) == value


def _type(record: Record) -> str:
    """Returns the event's type by the schema id alone; the value is not decoded."""
    try:
        return codec.event_name(record.value)
    except UndecodableRecord as broken:
        return broken.reason if record.value is not None else "tombstone"


def _headers(record: Record, name: str) -> list[str]:
    return [value.decode("utf-8", "replace") for header, value in record.headers if header == name]


def _field(record: Record, name: str) -> str | None:
    """Returns a field of the event or of its envelope, as text."""
    try:
        event = record.event()
    except UndecodableRecord:
        return None
    value = getattr(event, name, None)
    if value is None:
        value = getattr(getattr(event, "envelope", None), name, None)
    return None if value is None else str(value)
