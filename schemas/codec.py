"""Events as bytes: Confluent wire format (magic 0, big-endian 4-byte schema id, Avro datum).

Only what the writer's schema says is decoded, found by id in the committed id file; no registry is asked.
"""

import struct
from functools import cache
from typing import cast

from schemas.avro_files import current_ids, fingerprint, schema_ids
from schemas.errors import BadMagic, EmptyValue, MalformedDatum, UnknownSchemaId
from schemas.events import EVENT_TYPES, Event

HEADER = struct.Struct(">bI")
MAGIC = 0


def encode(event: Event) -> bytes:
    """An event as wire bytes. Raises ValueError or TypeError when a field does not fit its schema."""
    try:
        return _prefix(type(event).__name__) + event.binary()
    except (AttributeError, KeyError, struct.error) as misfit:
        raise TypeError(f"{type(event).__name__} has a field that does not fit its schema: {misfit!r}") from misfit


def decode(value: bytes | None) -> Event:
    """Wire bytes as an event. Raises a subclass of `UndecodableRecord` that says what is wrong with them."""
    kind = _kind(schema_id_of(value))
    data = cast("bytes", value)  # schema_id_of refuses None
    try:
        event, end = kind.read(data, HEADER.size)
    except Exception as broken:  # any parser error on foreign bytes means the same: these bytes are not that event
        raise MalformedDatum(f"{kind.__name__}: {type(broken).__name__}: {broken}") from broken
    if end != len(data):
        raise MalformedDatum(f"{kind.__name__}: {len(data) - end} bytes left over after the datum")
    return event


def schema_id_of(value: bytes | None) -> int:
    """Schema id of wire bytes. Raises EmptyValue or BadMagic."""
    if not value:
        raise EmptyValue("null or empty value")
    if len(value) < HEADER.size or value[0] != MAGIC:
        raise BadMagic(f"starts with {value[: HEADER.size].hex()}")
    return int(HEADER.unpack_from(value)[1])


def event_name(value: bytes | None) -> str:
    """Short name of the event type without decoding it. Raises EmptyValue, BadMagic or UnknownSchemaId."""
    return _kind(schema_id_of(value)).__name__


@cache
def _prefix(name: str) -> bytes:
    return HEADER.pack(MAGIC, current_ids()[f"claw.{name}"])


@cache
def _kind(schema_id: int) -> type[Event]:
    """The type whose schema is the writer's. From 0.1 on an older schema will be read by fastavro and `from_datum`."""
    entry = schema_ids().get(schema_id)
    if entry is None:
        raise UnknownSchemaId(f"schema id {schema_id}")
    name = entry["name"].rpartition(".")[2]
    if fingerprint(entry["name"]) != entry["fingerprint"]:
        raise UnknownSchemaId(f"schema id {schema_id} is a withdrawn, never released version of {name}")
    return EVENT_TYPES[name]
