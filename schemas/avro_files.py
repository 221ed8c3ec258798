"""The committed schemas: every `avro/*.avsc` as one self-contained schema, and the ids they go by on the wire.

Invariant: `avro/ids.json` is append-only. An id, once given, means the same schema for
ever; `avro/by_id/` keeps the text of each schema whose records are readable.
"""

import hashlib
import json
import os
from functools import cache
from pathlib import Path

from claw_r1.schemas.json_values import Json

FOLDER = Path(__file__).parent / "avro"
IDS_FILE = FOLDER / "ids.json"
BY_ID = FOLDER / "by_id"
FIRST_ID = 100_000
UNTIL = int(os.environ.get("CLAW_SCHEMAS_UNTIL") or 2**31)
"""The highest id of a schema that records are written with. In the middle of an upgrade, when the version before must
read what this one writes, it is the highest that that version knows (docs/cluster.md)."""


@cache
def raw_schemas() -> dict[str, Json]:
    """Full name -> schema as written, references to other files left as names."""
    parsed = (json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.avsc")))
    return {f"{schema['namespace']}.{schema['name']}": schema for schema in parsed}


def self_contained(name: str) -> Json:
    """The schema of `name` with each referenced type written out at its first mention, as registries want it."""
    return _inline(name, set())


def _inline(node: Json, seen: set[str]) -> Json:
    if isinstance(node, str):
        if node not in raw_schemas() or node in seen:
            return node
        seen.add(node)
        schema = raw_schemas()[node]
        if schema["type"] != "record":
            return schema
        return {**schema, "fields": [{**field, "type": _inline(field["type"], seen)} for field in schema["fields"]]}
    if isinstance(node, list):
        return [_inline(branch, seen) for branch in node]
    return {key: _inline(value, seen) if key in ("items", "values") else value for key, value in node.items()}


def wire_schema(name: str) -> Json:
    """The self-contained schema of today without docs: what decides the bytes."""
    return _without_docs(self_contained(name))


def _without_docs(node: Json) -> Json:
    if isinstance(node, list):
        return [_without_docs(item) for item in node]
    if isinstance(node, dict):
        return {key: _without_docs(value) for key, value in node.items() if key != "doc"}
    return node


def fingerprint(schema: Json) -> str:
    """sha256 hex of a `wire_schema`: equal fingerprints read and write the same bytes."""
    return hashlib.sha256(json.dumps(schema, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@cache
def schema_ids() -> dict[int, dict[str, str]]:
    """Schema id -> {"name", "fingerprint"}, as committed."""
    return {int(key): entry for key, entry in json.loads(IDS_FILE.read_text()).items()}


def current_ids() -> dict[str, int]:
    """Full name -> the id of the schema of today (the highest)."""
    ids = {entry["name"]: schema_id for schema_id, entry in sorted(schema_ids().items())}
    return {
        name: schema_id for name, schema_id in ids.items() if name in raw_schemas()
    }  # the others are written no more


@cache
def writing_ids() -> dict[str, int]:
    """Full name -> the id that records are written with: the highest up to `UNTIL`; of an event that is newer, its own."""
    kept_ids = sorted(schema_id for schema_id in schema_ids() if schema_id <= UNTIL and schema_file(schema_id).exists())
    newest = {schema_ids()[schema_id]["name"]: schema_id for schema_id in kept_ids}
    return {name: newest.get(name, schema_id) for name, schema_id in current_ids().items()}


def schema_file(schema_id: int) -> Path:
    """Returns the file of the schema behind an id."""
    return BY_ID / f"{schema_id}.avsc"


def written_schema(schema_id: int) -> Json | None:
    """The `wire_schema` that records of this id were written with; None where it is not kept, so that they are refused."""
    path = schema_file(schema_id)
    return json.loads(path.read_text()) if path.exists() else None
