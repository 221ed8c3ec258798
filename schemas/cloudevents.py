"""Kafka headers after the CloudEvents binding (binary mode), so that tools filter without decoding the value."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache

from schemas.events import Event

Headers = Sequence[tuple[str, bytes]]


def headers(event: Event) -> Headers:
    """CloudEvents attributes of an event. Pool records carry no envelope: theirs are type and version only."""
    of_type = _of_type(type(event).__name__)
    envelope = getattr(event, "envelope", None)
    if envelope is None:
        return of_type
    time = datetime.fromtimestamp(envelope.occurred_at_us / 1e6, UTC).isoformat().replace("+00:00", "Z")
    attributes = {"ce_id": envelope.event_id, "ce_source": envelope.producer, "ce_time": time}
    if envelope.traceparent:
        attributes["traceparent"] = envelope.traceparent
    return [*of_type, *((name, value.encode()) for name, value in attributes.items())]


@cache
def _of_type(name: str) -> Headers:
    """What all events of a type have in common."""
    return (
        ("ce_specversion", b"1.0"),
        ("ce_type", f"claw.{name}".encode()),
        ("content-type", b"application/vnd.confluent.avro"),
    )
