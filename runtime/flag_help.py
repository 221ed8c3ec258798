"""The text of `--help` on a setting: its docstring, its unit and its default. A secret's default is never shown."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

UNITS = {"_s": "SECONDS", "_ms": "MS", "_bytes": "BYTES", "_bytes_max": "BYTES", "_tokens_max": "TOKENS"}
SIZES = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}
FIELD_NAME = re.compile(r"`([a-z_]+)`")
KINDS: dict[Any, str] = {Path: "PATH", int: "NUMBER", float: "NUMBER"}  # keys: types


def field_of(model: type[BaseModel], path: str) -> FieldInfo:
    """The field that a flag sets; `spec.group_size` is a field of the model that the field `spec` holds."""
    name, _, rest = path.partition(".")
    field = model.model_fields[name]
    return field_of(field.annotation, rest) if rest else field  # type: ignore[arg-type]  # what holds a field is a model


def help_of(model: type[BaseModel], name: str, *, repeatable: bool) -> str:
    """The docstring of a field with its default, escaped for argparse; other fields in it are named as flags."""
    field = field_of(model, name)
    default = default_of(name, field)
    ending = " Repeatable." if repeatable else ""
    ending += " (required)" if field.is_required() else f" (default: {default})" if default else ""
    text = FIELD_NAME.sub(
        lambda match: flag_of(match[1]) if match[1] in model.model_fields else match[0], field.description or ""
    )
    return (" ".join(text.split()) + ending).replace("%", "%%")


def flag_of(name: str) -> str:
    """The flag of a field."""
    return f"--{name.replace('_', '-')}"


def default_of(name: str, field: FieldInfo) -> str:
    """The default as people write it; empty where there is none, where it is made at start, and for a secret."""
    value = field.default
    if field.repr is False or value is None or value is PydanticUndefined or isinstance(value, BaseModel):
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:g}"
    if not isinstance(value, int):
        return str(value)
    size = next((size for size in SIZES if "bytes" in name and value and value % SIZES[size] == 0), None)
    return f"{value} = {value // SIZES[size]} {size}" if size else str(value)


def placeholder(model: type[BaseModel], name: str, metavar: str) -> str:
    """Returns the placeholder for the value in `--flag VALUE`: its unit, its kind, or the words that it may be."""
    if metavar.startswith("{"):
        return metavar
    annotation = field_of(model, name).annotation
    if get_origin(annotation) is Mapping:
        return "NAME=VALUE"
    kinds = (annotation, *get_args(annotation))
    unit = next((unit for ending, unit in UNITS.items() if name.endswith(ending)), None)
    return unit or next((KINDS[kind] for kind in kinds if kind in KINDS), "TEXT")
