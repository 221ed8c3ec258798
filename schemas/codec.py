"""Events as bytes: Confluent wire format (magic 0, big-endian 4-byte schema id, Avro datum).

The schemas come from the committed files (`avro_files`); no registry is asked. What was written with an older schema is
read by Avro's rules for schema resolution: fields that were added since have their defaults. Where an older schema is
written (`avro_files.UNTIL`), these fields are left out.
"""

import struct
from collections.abc import Mapping, Sequence
from functools import cache
from io import BytesIO
from itertools import groupby, takewhile
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import msgspec
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from msgspec.structs import replace

from claw_r1.schemas.avro_files import current_ids, schema_ids, writing_ids, written_schema
from claw_r1.schemas.errors import BadMagic, EmptyValue, MalformedDatum, UnknownSchemaId
from claw_r1.schemas.events import EVENT_TYPES, Event

HEADER = struct.Struct(">bI")
MAGIC = 0
Parsed = Any  # what fastavro makes of a schema
Packed = Mapping[str, tuple[int, Sequence[bytes]]]
"""Field -> how many items its list has, and these, each encoded by itself, in any pieces."""
NOTHING_PACKED: Packed = MappingProxyType({})
END_OF_LIST = b"\0"
PREPARED = tuple(map(msgspec.msgpack.Decoder, EVENT_TYPES.values()))
"""msgspec learns a type when it is first asked for, and two threads that ask at once end the process (a null pointer, 0.22): so
one asks for all, as this is imported."""


class Reading(NamedTuple):
    """The way to read the bytes behind one schema id."""

    kind: type[Event]
    writer_schema: Parsed
    reader_schema: Parsed | None
    """None where the bytes were written with the schema of today."""


def encode(event: Event, packed: Packed = NOTHING_PACKED) -> bytes:
    """An event as wire bytes. Raises ValueError or TypeError when a field does not fit its schema.

    packed: lists whose items are encoded already (`encode_item`); what the event has in these fields is not looked at.
    """
    kind = type(event)
    fields = as_dict(replace(event, **dict.fromkeys(packed, ())) if packed else event)
    try:
        msgspec.convert(fields, kind)  # fastavro alone would write the low bits of a number that is too large
    except msgspec.ValidationError as misfit:
        raise ValueError(f"{kind.__name__} has a field that does not fit its schema: {misfit}") from misfit
    header, schema = _writing(kind.__name__)
    if not packed:
        return header + _written(schema, fields)
    parts = [header]
    for name, schema in _parts(kind.__name__, tuple(packed)):
        if name not in packed:
            parts.append(_written(schema, fields))
        else:
            items, pieces = packed[name]
            parts += [_written("long", items), *pieces, END_OF_LIST] if items else [END_OF_LIST]
    return b"".join(parts)


def encode_item(kind: type[Event], name: str, item: object) -> bytes:
    """One item of the list in that field, as it stands among the others in the bytes of an event. It must fit its schema;
    nothing where an older schema is written that has no such list."""
    schema = dict(_parts(kind.__name__, (name,))).get(name)
    return b"" if schema is None else _written(schema, as_dict(item) if isinstance(item, msgspec.Struct) else item)


def _written(schema: Parsed, datum: object) -> bytes:
    data = BytesIO()
    schemaless_writer(data, schema, datum, disable_tuple_notation=True)  # a tuple is an array here, no (type, value)
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
    schema_id = writing_ids()[f"claw.{name}"]
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
    types: dict[str, Any] = {}  # what a field names, the one that is left out may have written out
    parse_schema(next(field["type"]["items"] for field in schema["fields"] if field["name"] == name), types)
    fields = [field for field in schema["fields"] if field["name"] != name]
    return parse_schema({**schema, "fields": fields}, types)


@cache
def _parts(name: str, lists: tuple[str, ...]) -> Sequence[tuple[str, Parsed]]:
    """The schema in pieces, in their order: by its name what an item of each of these lists is, and what stands between."""
    schema = written_schema(writing_ids()[f"claw.{name}"])
    assert isinstance(schema, dict)  # events are records
    types: dict[str, Any] = {}  # what a piece names, an earlier one may have written out
    parts = []
    for number, (is_list, fields) in enumerate(groupby(schema["fields"], key=lambda field: field["name"] in lists)):
        if is_list:
            parts += [(field["name"], parse_schema(field["type"]["items"], types)) for field in fields]
        else:
            between = {**schema, "name": f"{name}{number}", "fields": list(fields)}
            parts.append((f"{number}", parse_schema(between, types)))
    return parts


@cache
def _head(schema_id: int) -> Parsed:
    schema = dict(written_schema(schema_id) or {})
    return parse_schema({**schema, "fields": list(takewhile(_is_no_list, schema["fields"]))})


def _is_no_list(field: dict[str, Any]) -> bool:
    return not (isinstance(field["type"], dict) and field["type"].get("type") == "array")
