"""`--filter NAME=VALUE`: which records of a topic are meant. Pure; several filters must all hold."""

from collections.abc import Callable, Iterable

from claw.errors import CannotRun
from eventlog.records import Record
from schemas import codec
from schemas.errors import UndecodableRecord

Filter = Callable[[Record], bool]
FIELDS = {"group": "group_id", "trajectory": "trajectory_id", "call": "call_id", "run": "run_id", "worker": "worker_id"}
"""Short names of fields."""


def filter_of(texts: Iterable[str]) -> Filter:
    """`type=CallCaptured`, `key=…`, `partition=…`, a field of the event (`group=…`, `channel=…`), or a header's name.

    Raises CannotRun for a text without `=`.
    """
    wanted = [_parsed(text) for text in texts]
    return lambda record: all(_holds(record, name, value) for name, value in wanted)


def _parsed(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise CannotRun(f"--filter takes NAME=VALUE, for example type=CallCaptured or group=g1, not {text!r}")
    return FIELDS.get(name, name), value


def _holds(record: Record, name: str, value: str) -> bool:
    match name:
        case "type":
            return _type(record) == value
        case "key":
            return record.key is not None and record.key.decode("utf-8", "replace") == value
        case "partition":
            return str(record.partition) == value
    return value in _headers(record, name) or _field(record, name) == value


def _type(record: Record) -> str:
    """Of the schema id alone; the value is not decoded."""
    try:
        return codec.event_name(record.value)
    except UndecodableRecord as broken:
        return broken.reason if record.value is not None else "tombstone"


def _headers(record: Record, name: str) -> list[str]:
    return [value.decode("utf-8", "replace") for header, value in record.headers if header == name]


def _field(record: Record, name: str) -> str | None:
    """Of the event or of its envelope, as text."""
    try:
        event = record.event()
    except UndecodableRecord:
        return None
    found = getattr(event, name, None)
    if found is None:
        found = getattr(getattr(event, "envelope", None), name, None)
    return None if found is None else str(found)
