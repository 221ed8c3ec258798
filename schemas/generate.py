"""`python -m claw_r1.schemas.generate`: avro/*.avsc -> events.py, and an id for each new schema of a record on a topic.

An id's schema is kept as `avro/by_id/ID.avsc`, so that its records stay readable when the schema gets more fields.
`--check` writes nothing and exits 1 when a file is out of date.
"""

import argparse
import json
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

from claw_r1.schemas.avro_files import FIRST_ID, IDS_FILE, fingerprint, raw_schemas, schema_file, wire_schema
from claw_r1.schemas.json_values import Json
from claw_r1.schemas.topics import TOPICS

EVENTS_FILE = Path(__file__).parent / "events.py"
PRIMITIVES = {
    "string": "str",
    "bytes": "bytes",
    "int": "Int32",
    "long": "Int64",
    "double": "float",
    "boolean": "bool",
    "null": "None",
}
HEADER = '''"""Event types, generated from avro/*.avsc by `python -m claw_r1.schemas.generate`. Do not edit."""

# ruff: noqa: E501
from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
'''


def short(full_name: str) -> str:
    return full_name.rpartition(".")[2]


def annotation(node: Json) -> str:
    """Avro type -> Python annotation: arrays are tuples, maps are mappings, enums are literals."""
    if isinstance(node, list):
        return " | ".join(annotation(branch) for branch in sorted(node, key=lambda branch: branch == "null"))
    if isinstance(node, dict):
        if node["type"] == "array":
            return f"tuple[{annotation(node['items'])}, ...]"
        return f"Mapping[str, {annotation(node['values'])}]"
    return PRIMITIVES.get(node) or short(node)


def default_of(spec: Json) -> str:
    """Source text of a field's default. Avro's empty array is an empty tuple here."""
    if "default" not in spec:
        return ""
    if spec["type"] == "bytes":
        return f" = {spec['default'].encode('latin-1')!r}"
    return " = ()" if spec["default"] == [] else f" = {spec['default']!r}"


def record_class(schema: Json) -> str:
    """Source text of a record's class, with the docs of its fields."""
    lines = [f"class {schema['name']}(Struct, frozen=True, kw_only=True):", _docstring(schema["doc"], "    "), ""]
    for spec in schema["fields"]:
        lines.append(f"    {spec['name']}: {annotation(spec['type'])}{default_of(spec)}")
        if spec.get("doc"):
            lines.append(_docstring(spec["doc"], "    "))
    return "\n".join([*lines, "", ""])


def _docstring(text: str, indent: str = "") -> str:
    return textwrap.fill(
        f'"""{text}"""',
        120,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def ordered() -> list[Json]:
    """Schemas so that each stands after those it refers to."""
    done: dict[str, Json] = {}

    def visit(node: Json) -> None:
        if isinstance(node, list):
            for branch in node:
                visit(branch)
        elif isinstance(node, dict):
            visit(node.get("items", node.get("values")))
        elif node in raw_schemas() and node not in done:
            for spec in raw_schemas()[node].get("fields", []):
                visit(spec["type"])
            done[node] = raw_schemas()[node]

    for name in raw_schemas():
        visit(name)
    return list(done.values())


def module() -> str:
    """Source text of events.py."""
    enums = [schema for schema in ordered() if schema["type"] == "enum"]
    records = [schema for schema in ordered() if schema["type"] == "record"]
    literals = [
        f"{e['name']} = Literal[{', '.join(repr(s) for s in e['symbols'])}]\n{_docstring(e['doc'])}" for e in enums
    ]
    on_topics = [short(name) for name in names_on_topics()]
    union = "Event = " + " | ".join(on_topics) + '\n"""Anything that stands on a topic."""\n'
    table = f"EVENT_TYPES: dict[str, type[Event]] = {{{', '.join(f'{name!r}: {name}' for name in on_topics)}}}\n"
    return HEADER + "\n".join([*literals, "", "", *map(record_class, records), union + table])


def ids() -> dict[str, Json]:
    """The id file with a new id appended for each schema on a topic whose fingerprint has none yet."""
    table = json.loads(IDS_FILE.read_text()) if IDS_FILE.exists() else {}
    entries = [(entry["name"], entry["fingerprint"]) for entry in table.values()]
    for name in names_on_topics():
        entry = (name, fingerprint(wire_schema(name)))
        if entry not in entries:
            table[str(FIRST_ID + len(table))] = {"name": name, "fingerprint": entry[1]}
    return table


def names_on_topics() -> list[str]:
    """Full names of the records that stand on a topic."""
    return sorted({f"claw.{name}" for topic in TOPICS for name in topic.records})


def current_schemas(table: Mapping[str, Json]) -> dict[Path, str]:
    """The text of each schema of today, by the file of its id. What older ids mean is never written again."""
    ids_of_names = {entry["name"]: int(key) for key, entry in table.items()}
    return {
        schema_file(ids_of_names[name]): json.dumps(wire_schema(name), indent=1) + "\n" for name in names_on_topics()
    }


def formatted(source: str) -> str:
    ruff = Path(sys.executable).with_name("ruff")
    command = [str(ruff), "format", "--stdin-filename", "schemas/events.py", "-"]
    return subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout


def generated() -> dict[Path, str]:
    """Every generated file and what it should say."""
    table = ids()
    id_file = {IDS_FILE: json.dumps(table, indent=1) + "\n"}
    return {EVENTS_FILE: formatted(module())} | id_file | current_schemas(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the files are up to date")
    check = parser.parse_args().check
    texts = generated()
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        print(f"{'stale' if check else 'written'}: {path.name}")
        if not check:
            path.write_text(texts[path])
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
