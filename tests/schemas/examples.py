"""The golden examples in `schemas/examples/`: one event of each type as JSON, and the bytes it stands on a topic as.

JSON has no bytes, so that fields of bytes are base64. `python -m tests.schemas.examples` writes the wire bytes anew from
the events. Do that only while a schema is unreleased: the bytes of a released version must stay readable for ever.
"""

import json
from pathlib import Path
from typing import Any

import msgspec

from claw_r1.schemas import codec
from claw_r1.schemas.events import EVENT_TYPES, Event

FOLDER = Path(__file__).parents[2] / "schemas" / "examples"
LINE = 64
"""Hexadecimal digits per line."""


class Example(msgspec.Struct):
    """What one file says."""

    event: dict[str, Any]
    bytes: list[str]


def read(name: str) -> Example:
    """The example of the type with this short name."""
    return msgspec.json.decode((FOLDER / f"{name}.json").read_bytes(), type=Example)


def event(name: str) -> Event:
    """The example as an event."""
    return msgspec.convert(read(name).event, EVENT_TYPES[name])


def golden(name: str) -> bytes:
    """The bytes that the example was written as."""
    return bytes.fromhex("".join(read(name).bytes))


EVENTS = {name: event(name) for name in EVENT_TYPES}

if __name__ == "__main__":
    for name, each in EVENTS.items():
        digits = codec.encode(each).hex()
        lines = [digits[at : at + LINE] for at in range(0, len(digits), LINE)]
        text = json.dumps({"event": msgspec.to_builtins(each), "bytes": lines}, indent=1, ensure_ascii=False)
        (FOLDER / f"{name}.json").write_text(text + "\n")
