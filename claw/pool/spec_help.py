"""`claw pool batch --explain`: every field of a batch spec and every preset, read from the spec itself."""

import shutil
import textwrap
from typing import Any

import orjson

from datapool.batch.spec import PRESETS, BatchSpec

NAME_WIDTH = 20


def show_knobs(*, as_json: bool) -> int:
    """Prints them."""
    print(orjson.dumps({"knobs": knobs(), "presets": PRESETS}).decode() if as_json else as_text())
    return 0


def knobs() -> list[dict[str, Any]]:  # JSON
    """Name, default, what it takes and what it does, in the order of the spec."""
    defaults = BatchSpec().model_dump(mode="json")
    schema = BatchSpec.model_json_schema()
    return [
        {
            "name": name,
            "default": defaults[name],
            "takes": _takes(knob, schema["$defs"]),
            "does": " ".join(knob["description"].split()),
        }
        for name, knob in schema["properties"].items()
    ]


def _takes(knob: dict[str, Any], definitions: dict[str, Any]) -> str:  # JSON schema
    if "$ref" in knob:
        inner = definitions[knob["$ref"].rpartition("/")[2]]["properties"]
        return "{" + ", ".join(f"{name}: {_takes(field, definitions)}" for name, field in inner.items()) + "}"
    if "anyOf" in knob:
        return " or ".join(_takes(choice, definitions) for choice in knob["anyOf"])
    if "enum" in knob:
        return " | ".join(knob["enum"])
    if "prefixItems" in knob:
        return f"[{', '.join(_takes(item, definitions) for item in knob['prefixItems'])}]"
    if knob["type"] == "array":
        return f"[{_takes(knob['items'], definitions)}, …]"
    if knob["type"] == "object":
        return f"{{name: {_takes(knob['additionalProperties'], definitions)}}}"
    least = f" >= {knob['minimum']}" if "minimum" in knob else ""
    return f"{knob['type']}{least}"


def as_text() -> str:
    """A paragraph per field, a line per preset."""
    width = min(shutil.get_terminal_size().columns, 120)
    lines = [f"{'preset':<{NAME_WIDTH}} one of those below: its fields are where the others start", ""]
    for knob in knobs():
        default = orjson.dumps(knob["default"]).decode()
        lines.append(f"{knob['name']:<{NAME_WIDTH}} {knob['takes']}; default {default}")
        lines += textwrap.wrap(knob["does"], width, initial_indent=" " * 4, subsequent_indent=" " * 4)
    lines += ["", "presets"]
    for name, fields in PRESETS.items():
        values = ", ".join(f"{field}: {value}" for field, value in fields.items())
        lines.append(f"    {name:<{NAME_WIDTH - 4}} {values}")
    return "\n".join(lines)
