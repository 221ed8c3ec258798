"""Events as bytes: Confluent wire format (magic 0, big-endian 4-byte schema id, Avro datum).

The schemas come from the committed files (`avro_files`); no registry is asked. What was written with an older schema is
read by Avro's rules for schema resolution: fields that were added since have their defaults.
"""

import struct
from functools import cache
from io import BytesIO
from itertools import takewhile
from typing import Any, NamedTuple, cast

import msgspec
from fastavro import parse_schema, schemaless_reader, schemaless_writer

from schemas.avro_files import current_ids, schema_ids, written_schema
from schemas.errors import BadMagic, EmptyValue, MalformedDatum, UnknownSchemaId
from schemas.events import EVENT_TYPES, Event

HEADER = struct.Struct(">bI")
MAGIC = 0
Parsed = Any  # what fastavro makes of a schema


class Reading(NamedTuple):
    """How the bytes behind one schema id are read."""

    kind: type[Event]
    writer_schema: Parsed
    reader_schema: Parsed | None
    """None where the bytes were written with the schema of today."""


def encode(event: Event) -> bytes:
    """An event as wire bytes. Raises ValueError or TypeError when a field does not fit its schema."""
    kind = type(event)
    fields = as_dict(event)
    try:
        msgspec.convert(fields, kind)  # fastavro alone would write the low bits of a number that is too large
    except msgspec.ValidationError as misfit:
        raise ValueError(f"{kind.__name__} has a field that does not fit its schema: {misfit}") from misfit
    header, schema = _writing(kind.__name__)
    data = BytesIO()
    data.write(header)
    schemaless_writer(data, schema, fields, disable_tuple_notation=True)  # a tuple is an array here, no (type, value)
    return data.getvalue()


def decode(value: bytes | None, *, without: str | None = None) -> Event:
    """Wire bytes as an event. Raises a subclass of `UndecodableRecord` that says what is wrong with them.

    without: a list that is large and not needed; it stays empty, and its bytes are passed over.
    """
    kind, writer_schema, reader_schema = _reading(schema_id_of(value))
    if without is not None:
        reader_schema = _schema_without(current_ids()[f"claw.{kind.__name__}"], without)
    data = BytesIO(cast("bytes", value))  # schema_id_of refuses None
    data.seek(HEADER.size)
    try:
        fields = cast("dict[str, Any]", schemaless_reader(data, writer_schema, reader_schema))
        event = msgspec.convert(fields if without is None else {**fields, without: ()}, kind)
    except Exception as broken:  # any parser error on foreign bytes means the same: these bytes are not that event
        raise MalformedDatum(f"{kind.__name__}: {type(broken).__name__}: {broken}") from broken
    if rest := data.read():
        raise MalformedDatum(f"{kind.__name__}: {len(rest)} bytes left over after the datum")
    return event


def fields_before_lists(value: bytes | None) -> dict[str, Any]:
    """The fields of an event that stand before its first list, read without the rest. Raises as `decode`."""
    schema_id = schema_id_of(value)
    kind = _reading(schema_id).kind
    data = BytesIO(cast("bytes", value))
    data.seek(HEADER.size)
    try:
        return cast("dict[str, Any]", schemaless_reader(data, _head(schema_id), None))
    except Exception as broken:
        raise MalformedDatum(f"{kind.__name__}: {type(broken).__name__}: {broken}") from broken


def as_dict(record: msgspec.Struct) -> dict[str, Any]:
    """An event or a part of one as plain dicts and tuples; bytes stay bytes."""
    fields: dict[str, Any] = msgspec.to_builtins(record, builtin_types=(bytes,))
    return fields


def schema_id_of(value: bytes | None) -> int:
    """Schema id of wire bytes. Raises EmptyValue or BadMagic."""
    if not value:
        raise EmptyValue("null or empty value")
    if len(value) < HEADER.size or value[0] != MAGIC:
        raise BadMagic(f"starts with {value[: HEADER.size].hex()}")
    return int(HEADER.unpack_from(value)[1])


def event_name(value: bytes | None) -> str:
    """Short name of the event type without decoding it. Raises EmptyValue, BadMagic or UnknownSchemaId."""
    return _reading(schema_id_of(value)).kind.__name__


@cache
def _writing(name: str) -> tuple[bytes, Parsed]:
    """The bytes in front of every event of this type, and its schema."""
    schema_id = current_ids()[f"claw.{name}"]
    return HEADER.pack(MAGIC, schema_id), _parsed(schema_id)


@cache
def _reading(schema_id: int) -> Reading:
    entry = schema_ids().get(schema_id)
    if entry is None:
        raise UnknownSchemaId(f"schema id {schema_id}")
    name = entry["name"].rpartition(".")[2]
    if written_schema(schema_id) is None:
        raise UnknownSchemaId(f"schema id {schema_id} is a withdrawn, never released version of {name}")
    current_id = current_ids()[entry["name"]]
    return Reading(EVENT_TYPES[name], _parsed(schema_id), None if schema_id == current_id else _parsed(current_id))


@cache
def _parsed(schema_id: int) -> Parsed:
    return parse_schema(written_schema(schema_id))


@cache
def _schema_without(schema_id: int, name: str) -> Parsed:
    schema = dict(written_schema(schema_id) or {})
    return parse_schema({**schema, "fields": [field for field in schema["fields"] if field["name"] != name]})


@cache
def _head(schema_id: int) -> Parsed:
    schema = dict(written_schema(schema_id) or {})
    return parse_schema({**schema, "fields": list(takewhile(_is_no_list, schema["fields"]))})


def _is_no_list(field: dict[str, Any]) -> bool:
    return not (isinstance(field["type"], dict) and field["type"].get("type") == "array")
