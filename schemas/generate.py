"""`python -m schemas.generate`: avro/*.avsc -> events.py, and an id for each new schema of a record on a topic.

`--check` writes nothing and exits 1 when a file is out of date.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from schemas.avro_files import FIRST_ID, IDS_FILE, Json, fingerprint, raw_schemas
from schemas.topics import TOPICS

EVENTS_FILE = Path(__file__).parent / "events.py"
PRIMITIVES = {
    "string": "str",
    "bytes": "bytes",
    "int": "int",
    "long": "int",
    "double": "float",
    "boolean": "bool",
    "null": "None",
}
HEADER = '''"""Event types, generated from avro/*.avsc by `python -m schemas.generate`. Do not edit."""

# ruff: noqa: E501, D101, D102
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from schemas.binary import (
    DOUBLE,
    END,
    LENGTH,
    NULL,
    POSITIVE,
    READ_DOUBLE,
    SMALL,
    again,
    array,
    int32,
    long,
    mapping,
    maybe_double,
    no_branch,
    number,
    number32,
    read_again,
    read_array,
    read_double,
    read_int32,
    read_length,
    read_long,
    read_mapping,
    read_maybe_double,
    read_text,
    read_time,
    text,
    time,
)
from schemas.quick import quick, unguarded

new = object.__new__
'''
SHARED = ("claw.Sampling", "claw.Integrity")
"""Records that seldom differ between the events of a stream: `schemas.binary.again`."""
READERS = {"string": "read_text", "int": "read_int32", "long": "read_long", "double": "read_double"}
WRITERS = {"string": "text", "int": "int32", "long": "long", "double": "DOUBLE"}
"""Of items of arrays and maps."""
UNPACKED = {
    "int": "{0} = n >> 1 ^ -(n & 1)",
    "long": "{0} = n >> 1 ^ -(n & 1)",
    "string": "{0} = d[at : (at := at + n)].decode()",
    "bytes": "{0} = d[at : (at := at + n)]",
}


def short(full_name: str) -> str:
    return full_name.rpartition(".")[2]


def is_record(node: Json) -> bool:
    return isinstance(node, str) and node in raw_schemas() and raw_schemas()[node]["type"] == "record"


def annotation(node: Json) -> str:
    """Avro type -> Python annotation: arrays are tuples, maps are mappings, enums are literals."""
    if isinstance(node, list):
        return " | ".join(annotation(branch) for branch in sorted(node, key=lambda branch: branch == "null"))
    if isinstance(node, dict):
        if node["type"] == "array":
            return f"tuple[{annotation(node['items'])}, ...]"
        return f"Mapping[str, {annotation(node['values'])}]"
    return PRIMITIVES.get(node) or short(node)


def to_datum(node: Json, value: str) -> str:
    """Expression that turns the attribute `value` into what fastavro writes."""
    if isinstance(node, list):
        inner = next(branch for branch in node if branch != "null")
        # In a union fastavro takes a tuple for a hint (branch name, value); a list is data.
        is_array = isinstance(inner, dict) and inner["type"] == "array" and not is_record(inner["items"])
        written = f"list({value})" if is_array else to_datum(inner, value)
        return value if written == value else f"None if {value} is None else {written}"
    if isinstance(node, dict) and node["type"] == "array":
        return f"[x.to_datum() for x in {value}]" if is_record(node["items"]) else value
    return f"{value}.to_datum()" if is_record(node) else value


def from_datum(node: Json, value: str) -> str:
    """Expression that turns what fastavro read, `value`, into the attribute."""
    if isinstance(node, list):
        inner = next(branch for branch in node if branch != "null")
        return (
            value if from_datum(inner, value) == value else f"None if {value} is None else {from_datum(inner, value)}"
        )
    if isinstance(node, dict) and node["type"] == "array":
        item = node["items"]
        return f"tuple([{short(item)}.from_datum(x) for x in {value}])" if is_record(item) else f"tuple({value})"
    return f"{short(node)}.from_datum({value})" if is_record(node) else value


def is_enum(node: Json) -> bool:
    return isinstance(node, str) and node in raw_schemas() and raw_schemas()[node]["type"] == "enum"


def enum_table(node: Json) -> str:
    """Name of the table symbol -> encoded index of an enum."""
    return f"_{short(node).upper()}"


def symbols(node: Json) -> str:
    """Name of the list of an enum's symbols."""
    return f"_{short(node).upper()}_SYMBOLS"


def binary(node: Json, value: str) -> str:
    """Expression, or several after commas, that turns the attribute `value` into Avro's bytes."""
    if isinstance(node, list):
        (inner,) = (branch for branch in node if branch != "null")
        index = bytes([2 * node.index(inner)])
        null = "NULL" if node.index("null") == 0 else repr(bytes([2 * node.index("null")]))
        if inner in ("string", "bytes"):  # the value is needed twice
            return f"{null} if (v := {value}) is None else {index!r} + {' + '.join(parts(inner, 'v'))}"
        return f"{null} if {value} is None else {index!r} + {' + '.join(parts(inner, value))}"
    return ", ".join(parts(node, value))


def parts(node: Json, value: str) -> list[str]:
    """Expressions whose bytes, one after the other, are those of a value that is not null."""
    if isinstance(node, dict) and node["type"] == "array":
        item = "x.binary()" if is_record(node["items"]) else f"{WRITERS[node['items']]}(x)"
        return [f"(array([{item} for x in {value}]) if {value} else END)"]
    if isinstance(node, dict):
        return [f"mapping({value}, {writer(node['values'])})"]
    if node in ("int", "long"):
        if value.endswith("_us"):
            return [f"time({value})"]
        return [f"(POSITIVE[n] if 0 <= (n := {value}) < SMALL else {WRITERS[node]}(n))"]
    if node == "string":
        return [f"LENGTH[len(b := {value}.encode())]", "b"]
    if node == "bytes":
        return [f"LENGTH[len({value})]", value]
    if node == "double":
        return [f"DOUBLE({value})"]
    if node == "boolean":
        return [f'(b"\\x01" if {value} else NULL)']
    if is_enum(node):
        return [f"{enum_table(node)}[{value}]"]
    return [f"again({value})" if node in SHARED else f"{value}.binary()"]


def writer(node: Json) -> str:
    """Name of the function that turns a value of a map into Avro's bytes."""
    return f"maybe_{WRITERS[or_null(node)].lower()}" if isinstance(node, list) else WRITERS[node]


def reader(node: Json) -> str:
    """Name of the function that reads an item of an array or a map."""
    if isinstance(node, list):
        return READERS[or_null(node)].replace("read_", "read_maybe_")
    return f"{short(node)}.read" if is_record(node) else READERS[node]


def or_null(node: Json) -> Json:
    """The type of a value that may be null, of which null is the first branch."""
    null, inner = node
    assert null == "null"  # what `schemas.binary` knows
    return inner


def read(node: Json, target: str) -> list[str]:
    """Statements that take the value at `at` of the datum `d` into `target` and put `at` behind it."""
    if isinstance(node, list):
        return read_union(node, target)
    if isinstance(node, dict):
        (item,) = (node[kind] for kind in ("items", "values") if kind in node)
        if node["type"] == "map":
            return [f"{target}, at = read_mapping({reader(item)}, d, at)"]
        return [f"{target}, at = ((), at + 1) if d[at] == 0 else read_array({reader(item)}, d, at)"]
    if node in SHARED:
        return [f"{target}, at = read_again({short(node)}, d, at)"]
    if is_record(node):
        return [f"{target}, at = {short(node)}.read(d, at)"]
    if is_enum(node):
        return ["n, at = read_length(d, at)", f"{target} = {symbols(node)}[n]"]
    if node == "double":
        return [f"({target},) = READ_DOUBLE(d, at)", "at += 8"]
    if node == "boolean":
        return [f"{target} = d[at] != 0", "at += 1"]
    return [read_number(node, target), UNPACKED[node].format(target)]


def read_number(node: Json, target: str) -> str:
    """Statement that takes a number or a length `n`. What fits into one byte needs no call; a time never does."""
    if target.endswith("_us"):
        return "n, at = read_time(d, at)"
    if node in ("int", "long"):
        return f"n, at = (d[at], at + 1) if d[at] < 0x80 else {'number32' if node == 'int' else 'number'}(d, at)"
    return "n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)"


def read_union(node: list[Json], target: str) -> list[str]:
    """Null or something."""
    (inner,) = (branch for branch in node if branch != "null")
    some, none = 2 * node.index(inner), 2 * node.index("null")
    lines = ["n = d[at]", "at += 1", f"if n == {some}:", *(f"    {line}" for line in read(inner, target))]
    return [*lines, f"elif n == {none}:", f"    {target} = None", "else:", "    raise no_branch(n)"]


def default_of(spec: Json) -> str:
    if "default" not in spec:
        return ""
    if spec["default"] == [] or spec["default"] == {}:
        return " = ()" if spec["default"] == [] else " = field(default_factory=dict)"
    return f" = {spec['default']!r}"


def record_class(schema: Json) -> str:
    fields = schema["fields"]
    lines = [
        "@quick",
        "@dataclass(frozen=True, slots=True, kw_only=True)",
        f"class {schema['name']}:",
        f'    """{schema["doc"]}"""',
        "",
    ]
    for spec in fields:
        lines.append(f"    {spec['name']}: {annotation(spec['type'])}{default_of(spec)}")
        if spec.get("doc"):
            lines.append(f'    """{spec["doc"]}"""')
    lines += ["", "    def to_datum(self) -> dict[str, Any]:", "        return {"]
    lines += [f'            "{spec["name"]}": {to_datum(spec["type"], "self." + spec["name"])},' for spec in fields]
    lines += [
        "        }",
        "",
        "    def binary(self) -> bytes:",
        '        return b"".join((',
    ]
    lines += [f"            {binary(spec['type'], 'self.' + spec['name'])}," for spec in fields]
    lines += [
        "        ))",
        "",
        "    @classmethod",
        f'    def from_datum(cls, d: Mapping[str, Any]) -> "{schema["name"]}":',
        "        return cls(",
    ]
    lines += [f"            {spec['name']}={from_datum(spec['type'], _read(spec))}," for spec in fields]
    lines += [
        "        )",
        "",
        "    @staticmethod",
        f'    def read(d: bytes, at: int) -> "tuple[{schema["name"]}, int]":',
        f"        made: Any = new(_{schema['name']})",
    ]
    lines += [f"        {line}" for spec in fields for line in read(spec["type"], f"made.{spec['name']}")]
    lines += [
        f"        made.__class__ = {schema['name']}",
        "        return made, at",
        "",
        "",
        f"_{schema['name']} = unguarded({schema['name']})",
        "",
        "",
    ]
    return "\n".join(lines)


def _read(spec: Json) -> str:
    return f'd["{spec["name"]}"]'


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
    enums = [schema for schema in ordered() if schema["type"] == "enum"]
    records = [schema for schema in ordered() if schema["type"] == "record"]
    literals = [f'{e["name"]} = Literal[{", ".join(repr(s) for s in e["symbols"])}]\n"""{e["doc"]}"""' for e in enums]
    tables = "\n".join(
        f"{enum_table(e['name'])} = {{{', '.join(f'{s!r}: {bytes([2 * n])!r}' for n, s in enumerate(e['symbols']))}}}"
        for e in enums
    )
    tables += "".join(
        f"\n{symbols(e['name'])}: list[{e['name']}] = [{', '.join(repr(s) for s in e['symbols'])}]" for e in enums
    )
    on_topics = sorted({name for topic in TOPICS for name in topic.records})
    union = "Event = " + " | ".join(on_topics) + '\n"""Anything that stands on a topic."""\n'
    table = f"EVENT_TYPES: dict[str, type[Event]] = {{{', '.join(f'{name!r}: {name}' for name in on_topics)}}}\n"
    return (
        HEADER
        + "\n".join(literals)
        + f"\n{tables}\n\n\n"
        + "\n".join(map(record_class, records))
        + "\n"
        + union
        + table
    )


def ids() -> dict[str, Json]:
    """The id file with a new id appended for each schema on a topic whose fingerprint has none yet."""
    table = json.loads(IDS_FILE.read_text()) if IDS_FILE.exists() else {}
    known = {(entry["name"], entry["fingerprint"]) for entry in table.values()}
    for name in sorted({f"claw.{name}" for topic in TOPICS for name in topic.records}):
        if (name, fingerprint(name)) not in known:
            table[str(max([FIRST_ID - 1, *map(int, table)]) + 1)] = {"name": name, "fingerprint": fingerprint(name)}
    return table


def formatted(source: str) -> str:
    ruff = Path(sys.executable).with_name("ruff")
    command = [str(ruff), "format", "--stdin-filename", "schemas/events.py", "-"]
    return subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the files are up to date")
    check = parser.parse_args().check
    wanted = {EVENTS_FILE: formatted(module()), IDS_FILE: json.dumps(ids(), indent=1) + "\n"}
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        print(f"{'stale' if check else 'written'}: {path.name}")
        if not check:
            path.write_text(wanted[path])
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
