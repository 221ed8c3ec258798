"""Hypothesis strategies for every event type, built from the schemas themselves and not from the generated classes."""

from typing import Any

import msgspec
from hypothesis import strategies as st

from claw_r1.schemas.avro_files import raw_schemas
from claw_r1.schemas.events import EVENT_TYPES, Event

Json = Any  # parsed Avro schema
PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.integers(-(1 << 63), (1 << 63) - 1),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=8),
    "bytes": st.binary(max_size=8),
}


def events(name: str) -> st.SearchStrategy[Event]:
    """Any event of the type with this short name."""
    return datum(f"claw.{name}").map(lambda fields: msgspec.convert(fields, EVENT_TYPES[name]))


def datum(node: Json) -> st.SearchStrategy[Any]:
    """Any value of an Avro type, as fastavro reads it."""
    if isinstance(node, list):
        return st.one_of([datum(branch) for branch in node])
    if isinstance(node, dict) and node["type"] == "array":
        return st.lists(datum(node["items"]), max_size=3)
    if isinstance(node, dict) and node["type"] == "map":
        return st.dictionaries(st.text(max_size=5), datum(node["values"]), max_size=3)
    if isinstance(node, str) and node in PRIMITIVES:
        return PRIMITIVES[node]
    schema = raw_schemas()[node] if isinstance(node, str) else node
    if schema["type"] == "enum":
        return st.sampled_from(schema["symbols"])
    return st.fixed_dictionaries({field["name"]: datum(field["type"]) for field in schema["fields"]})
