"""Conventions of the schemas and their ids, each held for every one of them."""

import json
from pathlib import Path

import pytest

from claw_r1.schemas.avro_files import (
    FIRST_ID,
    current_ids,
    fingerprint,
    raw_schemas,
    schema_ids,
    self_contained,
    wire_schema,
)

RECORDS = {name: schema for name, schema in raw_schemas().items() if schema["type"] == "record"}
ENUMS = {name: schema for name, schema in raw_schemas().items() if schema["type"] == "enum"}
FIELDS = [(name, field) for name, schema in RECORDS.items() for field in schema["fields"]]


@pytest.mark.parametrize("name", sorted(raw_schemas()))
def test_every_schema_says_what_it_is(name: str) -> None:
    """Name and namespace are ours, and there is a doc that a person can read."""
    schema = raw_schemas()[name]
    assert schema["namespace"] == "claw"
    assert len(schema["doc"]) > 10


@pytest.mark.parametrize("name", sorted(ENUMS))
def test_every_enum_has_a_default_for_symbols_to_come(name: str) -> None:
    """An old reader that meets a new symbol reads `unknown` instead of failing."""
    assert ENUMS[name]["default"] == "unknown"
    assert "unknown" in ENUMS[name]["symbols"]


@pytest.mark.parametrize(("name", "field"), FIELDS, ids=[f"{name}.{field['name']}" for name, field in FIELDS])
def test_every_field_can_evolve(name: str, field: dict[str, object]) -> None:
    """Names are snake_case; unions put null first and default to it, so that a field can be added and left out."""
    assert str(field["name"]) == str(field["name"]).lower()
    if isinstance(field["type"], list):
        assert field["type"][0] == "null"
        assert "default" in field
        assert field["default"] is None


def test_ids_are_given_once_and_in_order() -> None:
    """Ids count up from 100000 without gaps; no schema has two, and each event's newest id is its schema of today."""
    ids = list(schema_ids())
    assert ids == list(range(FIRST_ID, FIRST_ID + len(ids)))
    entries = [(entry["name"], entry["fingerprint"]) for entry in schema_ids().values()]
    assert len(set(entries)) == len(entries)
    for name, schema_id in current_ids().items():
        assert schema_ids()[schema_id]["fingerprint"] == fingerprint(wire_schema(name))


def test_released_ids_never_change() -> None:
    """Every id in released_ids.json, which a release only adds to, still names the same schema."""
    released = json.loads(Path(__file__).with_name("released_ids.json").read_text())
    for key, entry in released.items():
        assert schema_ids()[int(key)] == entry


def test_a_fingerprint_ignores_docs_and_nothing_else() -> None:
    """Rewording a doc gives no new id; the self-contained schema names each referenced type once."""
    schema = self_contained("claw.CallCaptured")
    text = json.dumps(schema)
    assert text.count('"name": "Edge"') == 1
    assert len({fingerprint(wire_schema(name)) for name in RECORDS}) == len(RECORDS)
