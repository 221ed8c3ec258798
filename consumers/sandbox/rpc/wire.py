"""The protocol between tests and code: frames of JSON, in which a value is a table of its parts, by tags.

Invariant: reading makes only plain values, whoever wrote them, and deep nesting costs no stack. A value that occurs
twice, or contains itself, does so after reading.
"""

import json
import re
import socket
import struct
import sys
from collections.abc import Callable, Mapping
from typing import Any

from claw_r1.consumers.sandbox.rpc.serialization import EXACT, NEAREST, TAGS, Form

LENGTH = struct.Struct(">I")
FRAME_BYTES_MAX = 64 << 20
INTEGER_MAX = 1 << 64
"""Beyond it Python's own reading of decimals is slow, and refused from some length on."""
SCALARS = frozenset({type(None), bool, float, str})
ARRAYS = re.compile(r"[<>|=]?[biufcUS]\d+")
"""numpy's types of fixed size without objects."""

Parts = tuple[str, list[Any]]
"""A tag, and values."""
NEVER: Parts = ("", [])


def is_scalar(value: Any) -> bool:
    """Returns whether JSON has the value."""
    kind = type(value)
    return kind in SCALARS or (kind is int and -INTEGER_MAX < value < INTEGER_MAX)


def parts_of(value: Any, *, exactly: bool = True) -> Any:
    """The parts of a standard type or of numpy's, a scalar, or `NEVER`. exactly: not of a class that is built on such a type."""
    if form := EXACT.get(type(value)):
        return form.tag, list(form.take(value))
    if hasattr(type(value), "dtype") and hasattr(type(value), "tolist"):  # a mock of the tests has every name
        return _array(value)
    if exactly:
        return NEVER
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return content(value, kind)
    for form in NEAREST:
        if isinstance(value, form.kind):
            return form.tag, list(form.take(value))
    return NEVER


def content(value: Any, kind: type) -> Any:
    """A value of a class that is built on an immutable type, as one of that type."""
    if kind is str:
        return str.__str__(value)
    if kind is int:
        return int.__index__(value)
    if kind is float:
        return float.__float__(value)
    if kind is bytes:
        return b"".join([value])
    return kind(value)


def _array(value: Any) -> Any:
    """numpy's scalars are numbers; its arrays go as such, whatever else is like them as lists."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.ndarray) or not ARRAYS.fullmatch(value.dtype.str):
        plain = value.tolist()
        return plain if is_scalar(plain) else parts_of(plain)
    return "array", [value.dtype.str, tuple(value.shape), *value.ravel().tolist()]


def array(kind: str, shape: tuple[int, ...], *items: Any) -> Any:
    """Makes the array that `_array` wrote; as lists where this process has not imported numpy. Raises ValueError."""
    if not ARRAYS.fullmatch(kind):
        raise ValueError(kind)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        return numpy.array(items, dtype=kind).reshape(shape)
    rows: list[Any] = list(items)
    for length in reversed(shape[1:]):
        rows = [rows[begin : begin + length] for begin in range(0, len(rows), length or 1)]
    return rows if shape else rows[0]


def packed(value: Any, parts: Callable[[Any], Any], written: dict[int, Any] | None = None) -> Any:
    """A value for JSON. parts: of what is no scalar, as of `parts_of`; may raise. written: takes the values by their numbers in it."""
    references: dict[int, Any] = {}
    nodes: list[list[Any]] = []
    alive = []  # so that no two have one id
    waiting: list[tuple[Any, Parts | None]] = [(value, None)]
    while waiting:
        one, form = waiting.pop()
        if form is not None:  # all that it holds was written: what cannot hold itself is read in this order
            items = (item if is_scalar(item) else references[id(item)] for item in form[1])
            nodes.append([references[id(one)][0], form[0], *items])
        elif not is_scalar(one) and id(one) not in references:
            form = parts(one)
            alive.append((one, form))
            if is_scalar(form):
                references[id(one)] = form
                continue
            if written is not None:
                written[len(references)] = one
            references[id(one)] = [len(references)]
            waiting.append((one, form))
            waiting += [(item, None) for item in reversed(form[1]) if not is_scalar(item)]
    return [value if is_scalar(value) else references[id(value)], nodes]


def unpacked(
    data: Any,
    special: Callable[[str, list[Any]], Any],
    forms: Mapping[str, Form] = TAGS,
    read: dict[int, Any] | None = None,
) -> Any:
    """The value that `packed` wrote; `special` takes tags that are none of `forms`. Raises whatever nonsense brings about.

    read: takes the values by their numbers.
    """
    root, nodes = data
    values: dict[int, Any] = {} if read is None else read
    for number, tag, *items in nodes:
        form = forms.get(tag)
        if form is not None and form.fill is not None:
            values[number] = form.make(*checked(items[:2], form.types))
    for number, tag, *items in nodes:
        if number not in values:
            parts = [values[item[0]] if type(item) is list else item for item in items]
            form = forms.get(tag)
            values[number] = special(tag, parts) if form is None else form.make(*checked(parts, form.types))
    for number, tag, *items in nodes:
        form = forms.get(tag)
        if form is not None and form.fill is not None:
            form.fill(values[number], [values[item[0]] if type(item) is list else item for item in items])
    return values[root[0]] if type(root) is list else root


def checked(parts: list[Any], types: tuple[type, ...] | None) -> list[Any]:
    """The parts, of these types exactly. Raises TypeError."""
    if types is not None and tuple(map(type, parts)) != types:
        raise TypeError(f"{types} expected")
    return parts


def send(peer: socket.socket, message: Any, parts: Callable[[Any], Any], written: dict[int, Any] | None = None) -> None:
    """One frame. Raises ValueError for one that is too long, and what `parts` raises; then nothing was sent."""
    data = json.dumps(packed(message, parts, written), separators=(",", ":")).encode()
    if len(data) > FRAME_BYTES_MAX:
        raise ValueError(f"a value of {len(data)} bytes is too long to be handed over")
    peer.sendall(LENGTH.pack(len(data)) + data)


def receive(peer: socket.socket) -> Any:
    """The next frame, for `unpacked`. Raises EOFError at the end, and ValueError or RecursionError for other bytes."""
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
