"""Every field of a batch spec and every preset, read from the spec itself."""

from typing import Any

from claw_r1.datapool.batch.spec import BatchSpec


def knobs() -> list[dict[str, Any]]:  # JSON
    """Name, default, values and effect, in the order of the spec."""
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
