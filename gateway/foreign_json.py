"""JSON of others. Of engines, which are foreign servers: read tolerantly, walked through within bounds, written again. Of
clients: changed without writing a number otherwise than its client did."""

import json
from collections.abc import Callable
from typing import Any

import orjson

from claw_r1.gateway.errors import InvalidRequest
from claw_r1.schemas.json_values import Json

INT32_MAX = (1 << 31) - 1
DEPTH_MAX = 200
"""Nesting of JSON that is written again: within what orjson writes (254)."""


def loads(raw: bytes) -> Json:
    """The value. Raises ValueError."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(raw)  # takes NaN, which some engines write; such a call is stored, not trainable
    except RecursionError as deep:
        raise ValueError("nested too deeply") from deep


def loads_shallow(raw: bytes) -> Json:
    """Loads JSON like `loads`, if it can be walked through and written again. Raises ValueError, also for what is
    nested too deeply."""
    value = loads(raw)
    if raw.count(b"[") + raw.count(b"{") > DEPTH_MAX and _is_deep(value):
        raise ValueError("nested too deeply")
    return value


def object_of(raw: bytes) -> dict[str, Json] | None:
    """The object that these bytes are; None where they are anything else."""
    try:
        fields = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    return fields if isinstance(fields, dict) else None


def dumps(fields: dict[str, Json]) -> bytes:
    """JSON of what `loads_shallow` gave."""
    try:
        return orjson.dumps(fields)
    except TypeError:  # an integer beyond 64 bits, a lone surrogate
        return json.dumps(fields).encode()


def rewritten(body: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """The object in `body`, changed. Any: a client's fields. Raises InvalidRequest."""
    # Not orjson, which makes floats of integers beyond 64 bits, and writes less deeply nested values than it reads.
    try:
        fields = json.loads(body)
        change(fields)
        return json.dumps(fields).encode()
    except (RecursionError, ValueError) as broken:
        raise InvalidRequest("the body is nested too deeply, or holds a number of too many digits") from broken


def objects(items: object) -> list[dict[str, Any]]:
    """The objects in a list; none in anything else."""
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def error_text(body: bytes) -> str:
    """Returns the text of an error whose shape is another API's: the message in its `error`, else all of it. An event can hold it."""
    try:
        fields = loads(body)
        message = encodable(fields["error"]["message"])
    except (ValueError, TypeError, LookupError):
        message = None
    return body.decode(errors="replace") if message is None else message


def encodable(text: Json) -> str | None:
    """The text without lone surrogates, which JSON may hold and no event; None when it is no text."""
    if not isinstance(text, str):
        return None
    return text if text.isascii() else text.encode(errors="replace").decode()


def count(value: Json, default: int) -> int:
    """A count as it should be (an int32 from 0 up), else the default."""
    return value if type(value) is int and 0 <= value <= INT32_MAX else default


def _is_deep(value: Json) -> bool:
    level = [value]
    for _ in range(DEPTH_MAX):
        containers = [
            item.values() if isinstance(item, dict) else item for item in level if isinstance(item, (dict, list))
        ]
        level = [child for children in containers for child in children]
        if not level:
            return False
    return True
