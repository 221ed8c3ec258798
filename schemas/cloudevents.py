"""Kafka headers after the CloudEvents binding (binary mode), so that tools filter without decoding the value."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache

from claw_r1.schemas.events import Event

Headers = Sequence[tuple[str, bytes]]
RUN_HEADER = "claw_run"
"""The header of a row of the pool that names the run of its group, where that is known."""

TRACEPARENT = "traceparent"


def of_run(run_id: str | None) -> Headers:
    """Returns the header of the rows of a run's groups."""
    return () if run_id is None else ((RUN_HEADER, run_id.encode("utf-8", "surrogatepass")),)


def headers(event: Event) -> Headers:
    """CloudEvents attributes of an event. Pool records carry no envelope: theirs are type and version only."""
    of_type = _of_type(type(event).__name__)
    envelope = getattr(event, "envelope", None)
    if envelope is None:
        return of_type
    own = [
        ("ce_id", envelope.event_id.encode()),
        ("ce_source", envelope.producer.encode()),
        ("ce_time", _time(envelope.occurred_at_us)),
    ]
    if envelope.traceparent:
        own.append((TRACEPARENT, envelope.traceparent.encode()))
    return [*of_type, *own]


def traceparent_of(own: Headers) -> str | None:
    """Returns the trace context in the headers of a record."""
    return next((value.decode("latin-1") for name, value in own if name == TRACEPARENT and value), None)


def _time(at_us: int) -> bytes:
    """RFC 3339, in UTC. A whole second has no fraction."""
    second, fraction_us = divmod(at_us, 1_000_000)
    return b"%b.%06dZ" % (_second(second), fraction_us) if fraction_us else _second(second) + b"Z"


@lru_cache(maxsize=64)
def _second(at_s: int) -> bytes:
    """Events come many in a second."""
    return datetime.fromtimestamp(at_s, UTC).replace(tzinfo=None).isoformat().encode()


@cache
def _of_type(name: str) -> Headers:
    """Returns the headers that all events of a type have in common."""
    return (
        ("ce_specversion", b"1.0"),
        ("ce_type", f"claw.{name}".encode()),
        ("content-type", b"application/vnd.confluent.avro"),
    )
