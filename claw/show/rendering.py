"""Events as a person or a JSON reader wants them: packed numbers unpacked, bodies as JSON, opaque bytes as base64."""

import base64
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from schemas import arrays
from schemas.codec import as_dict
from schemas.events import CallCaptured, Event
from schemas.http import version_label

IDS = frozenset({"response_ids"})
FLOATS = frozenset({"response_logprobs"})
BODIES = frozenset({"request", "response_body"})

Plain = Any  # what JSON can hold


def as_plain(event: Event) -> dict[str, Plain]:
    """An event as a JSON-able dict; the type stands under "type"."""
    return {"type": type(event).__name__, **{name: _plain(name, value) for name, value in as_dict(event).items()}}


def printable(text: str) -> str:
    """Somebody else's text for a terminal: what is not printable, line breaks too, stands there by its number."""
    return "".join(each if each.isprintable() else f"<U+{ord(each):04X}>" for each in text)


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
    if name in IDS:
        return arrays.unpack_ids(value)
    if name in FLOATS:
        return [round(x, 6) for x in arrays.unpack_floats(value)]
    if name in BODIES:
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            pass  # a body that is no JSON is shown as the bytes it is
    return {"base64": base64.b64encode(value).decode()}


def table(cells: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Lines of columns, each as wide as its longest cell."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def one_line(event: Event) -> str:
    """An event on one line: its type and what tells it from others."""
    parts = [f"{name}={value}" for name in SHOWN if (value := getattr(event, name, None)) not in (None, "", ())]
    if isinstance(event, CallCaptured):
        versions = ",".join(f"{version_label(s.run_id, s.version)}[{s.start}:{s.end}]" for s in event.spans)
        parts += [f"tokens={event.usage.prompt_tokens}+{arrays.count(event.response_ids)}", f"versions={versions}"]
    return f"{type(event).__name__:<20} {' '.join(parts)}"


SHOWN = (
    "group_id",
    "trajectory_id",
    "call_id",
    "worker_id",
    "model_id",
    "run_id",
    "sequence",
    "version",
    "status",
    "state",
    "ready",
    "reasons",
    "expected_size",
    "channel",
    "calls",
    "reward",
    "value",
    "return_total",
    "reward_mean",
    "reason",
)
