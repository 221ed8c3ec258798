"""What tests and code say to each other: frames of JSON, values by tags. Reading makes plain values alone, whoever wrote them."""

import json
import socket
import struct
from collections.abc import Callable
from typing import Any

LENGTH = struct.Struct(">I")
FRAME_BYTES_MAX = 8 << 20
SEQUENCES: dict[str, type[Any]] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}


def written(value: Any, reference: Callable[[Any], Any]) -> Any:
    """A value for JSON; what is not plain becomes `reference(value)`. numpy's scalars and arrays are numbers and lists."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind in (bytes, bytearray):
        return ["bytes", value.hex()]
    if kind is complex:
        return ["complex", value.real, value.imag]
    if kind.__name__ in SEQUENCES and kind is SEQUENCES[kind.__name__]:
        return [kind.__name__, *(written(item, reference) for item in value)]
    if kind is dict:
        return ["dict", *([written(key, reference), written(item, reference)] for key, item in value.items())]
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return written(value.tolist(), reference)
    return reference(value)


def read(data: Any, reference: Callable[[list[Any]], Any]) -> Any:
    """The value that `written` wrote; `reference` takes what it does not know. Raises ValueError, TypeError, IndexError."""
    if not isinstance(data, list):
        return data
    tag, *items = data
    if tag in SEQUENCES:
        return SEQUENCES[tag](read(item, reference) for item in items)
    if tag == "dict":
        return {read(key, reference): read(item, reference) for key, item in items}
    if tag == "bytes":
        return bytes.fromhex(items[0])
    if tag == "complex":
        return complex(float(items[0]), float(items[1]))
    return reference(data)


def send(peer: socket.socket, message: Any) -> None:
    """One frame. Raises ValueError for one that is too long."""
    data = json.dumps(message).encode("utf-8", "surrogatepass")
    if len(data) > FRAME_BYTES_MAX:
        raise ValueError(f"a value of {len(data)} bytes is too long to be handed over")
    peer.sendall(LENGTH.pack(len(data)) + data)


def receive(peer: socket.socket) -> Any:
    """The next frame. Raises EOFError at the end, and ValueError or RecursionError for what is none."""
    (length,) = LENGTH.unpack(_exactly(peer, LENGTH.size))
    if length > FRAME_BYTES_MAX:
        raise ValueError("a frame is too long")
    return json.loads(_exactly(peer, length))


def _exactly(peer: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        if not (part := peer.recv(length - len(data))):
            raise EOFError("the other process ended")
        data += part
    return bytes(data)
