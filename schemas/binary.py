"""Avro's binary encoding, value by value: what the generated `binary()` of each event is made of.

Invariant: the bytes are those that fastavro writes (a test compares them); only the way is shorter, because an event
knows its types and no union has to be guessed. Each function raises TypeError, ValueError or AttributeError for a value
of another type; `codec.encode` makes one kind of error of them.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

Value = TypeVar("Value")
NULL = b"\x00"
END = b"\x00"
"""Of an array or map."""
SMALL = 8192
LONGEST = 2**63
DOUBLE = struct.Struct("<d").pack
INT_MAX = 2**31


def _varint(number: int) -> bytes:
    """Zigzag, then seven bits per byte, lowest first."""
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


POSITIVE = tuple(_varint(number) for number in range(SMALL))


def long(number: int) -> bytes:
    """A 64-bit integer."""
    if 0 <= number < SMALL:
        return POSITIVE[number]
    if not -LONGEST <= number < LONGEST:
        raise ValueError(f"{number} does not fit into 64 bits")
    return _varint(number)


def int32(number: int) -> bytes:
    """A 32-bit integer."""
    if 0 <= number < SMALL:
        return POSITIVE[number]
    if not -INT_MAX <= number < INT_MAX:
        raise ValueError(f"{number} does not fit into 32 bits")
    return _varint(number)


def data(value: bytes) -> bytes:
    """Bytes after their length."""
    return long(len(value)) + value


def text(value: str) -> bytes:
    """UTF-8 after its length."""
    encoded = value.encode()
    length = len(encoded)
    return (POSITIVE[length] if length < SMALL else _varint(length)) + encoded


def double(value: float) -> bytes:
    """Eight bytes."""
    return DOUBLE(value)


def boolean(value: bool) -> bytes:
    """One byte."""
    return b"\x01" if value else b"\x00"


def array(items: Sequence[bytes]) -> bytes:
    """One block of encoded items."""
    return long(len(items)) + b"".join(items) + END if items else END


def mapping(values: Mapping[str, Value], item: Callable[[Value], bytes]) -> bytes:
    """One block of text and item, in the mapping's own order."""
    return array([text(key) + item(value) for key, value in values.items()])
