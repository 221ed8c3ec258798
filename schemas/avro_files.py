"""The committed schemas: every `avro/*.avsc` as one self-contained schema, and the ids they go by on the wire.

Invariant: `avro/ids.json` is append-only. An id, once given, means the same schema for ever.
"""

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "avro"
IDS_FILE = FOLDER / "ids.json"
FIRST_ID = 100_000

Json = Any  # parsed JSON of an Avro schema: a name, a list (union) or an object


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


def fingerprint(name: str) -> str:
    """sha256 hex of the self-contained schema without docs: equal fingerprints read and write the same bytes."""
    text = json.dumps(_without_docs(self_contained(name)), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _without_docs(node: Json) -> Json:
    if isinstance(node, list):
        return [_without_docs(item) for item in node]
    if isinstance(node, dict):
        return {key: _without_docs(value) for key, value in node.items() if key != "doc"}
    return node


@cache
def schema_ids() -> dict[int, dict[str, str]]:
    """Schema id -> {"name", "fingerprint"}, as committed."""
    return {int(key): entry for key, entry in json.loads(IDS_FILE.read_text()).items()}


def current_ids() -> dict[str, int]:
    """Full name -> the id that new records of this event are written with (the highest)."""
    return {entry["name"]: schema_id for schema_id, entry in sorted(schema_ids().items())}
