"""Events as JSON: packed numbers unpacked, bodies as JSON, opaque bytes as base64. Pure."""

import base64
from typing import Any

import orjson

from claw_r1.schemas import arrays
from claw_r1.schemas.codec import as_dict
from claw_r1.schemas.events import Event

IDS = frozenset({"response_ids"})
FLOATS = frozenset({"response_logprobs"})
BODIES = frozenset({"request", "response_body"})

Plain = Any  # what JSON can hold


def as_plain(event: Event) -> dict[str, Plain]:
    """An event as a JSON-able dict; the type stands under "type"."""
    return {"type": type(event).__name__, **{name: _plain(name, value) for name, value in as_dict(event).items()}}


def _plain(name: str, value: Plain) -> Plain:
    if isinstance(value, bytes):
        return _numbers_or_body(name, value)
    if isinstance(value, dict):
        return {key: _plain(_edge_unit(name, key), item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(name, item) for item in value]
    return value


def _edge_unit(name: str, key: str) -> str:
    """The suffix of a prompt edge counts token ids, that of a body edge bytes."""
    if key != "suffix":
        return key
    return "response_ids" if name == "prompt" else "response_body"


def _numbers_or_body(name: str, value: bytes) -> Plain:
    are_whole = not len(value) % arrays.ITEM_BYTES  # a call whose numbers are cut is a usable fact: `ids_malformed`
    if name in IDS and are_whole:
        return arrays.unpack_ids(value)
    if name in FLOATS and are_whole:
        return [round(x, 6) for x in arrays.unpack_floats(value)]
    if name in BODIES:
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            pass  # what is no JSON, as what are no whole numbers, is shown as the bytes it is
    return {"base64": base64.b64encode(value).decode()}
