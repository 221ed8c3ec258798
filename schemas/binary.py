"""Avro's binary encoding, value by value: what the generated `binary()` and `read()` of each event are made of.

Invariant: the bytes are those that fastavro writes, and are read as fastavro reads them (tests compare them); only the
way is shorter, because an event knows its types, no union has to be guessed and no dict stands between. Each function
raises TypeError, ValueError or AttributeError for a value of another type; `codec` makes one kind of error of them.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, Self, TypeVar, cast

Value = TypeVar("Value")


class Binary(Protocol):
    """A record that can be written."""

    def binary(self) -> bytes: ...


class Readable(Protocol):
    """A record that can be read."""

    @classmethod
    def read(cls, r: "Reader") -> Self: ...


ReadValue = TypeVar("ReadValue", bound=Readable)
WRITTEN: dict[type, tuple[object, bytes]] = {}
READ: dict[type, tuple[bytes, object]] = {}
"""The last one of each type. Bytes decide what they are read as, so a memory of one is no state."""
NULL = b"\x00"
END = b"\x00"
"""Of an array or map."""
SMALL = 8192
LONGEST = 2**63
LAST_SHIFT = 63
"""Of the tenth byte of a number, which has one bit left of 64."""
EIGHT_BYTES, NINE_BYTES = 2**48, 2**55
"""Where positive numbers begin to take as many."""
DOUBLE = struct.Struct("<d").pack
READ_DOUBLE = struct.Struct("<d").unpack_from
INT_MAX = 2**31


LAST = tuple(bytes([rest]) if rest < 0x80 else bytes([rest & 0x7F | 0x80, rest >> 7]) for rest in range(2 * SMALL))
"""The end of a number: seven bits per byte, lowest first, the last byte without its high bit."""
MORE = tuple(bytes([rest & 0x7F | 0x80, rest >> 7 | 0x80]) for rest in range(2 * SMALL))
"""Fourteen bits of a number that goes on."""
POSITIVE = LAST[::2]


def _varint(number: int) -> bytes:
    """Zigzag, then fourteen bits at a time."""
    rest = (number << 1) ^ (number >> 63)
    out = b""
    while rest >= 2 * SMALL:
        out += MORE[rest & 2 * SMALL - 1]
        rest >>= 14
    return out + LAST[rest]


def long(number: int) -> bytes:
    """A 64-bit integer."""
    if 0 <= number < SMALL:
        return POSITIVE[number]
    if EIGHT_BYTES <= number < NINE_BYTES:  # a time in microseconds, as most large numbers are
        rest = number << 1
        return MORE[rest & 0x3FFF] + MORE[rest >> 14 & 0x3FFF] + MORE[rest >> 28 & 0x3FFF] + LAST[rest >> 42]
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
    length = len(value)
    return (POSITIVE[length] if length < SMALL else _varint(length)) + value


def text(value: str) -> bytes:
    """UTF-8 after its length."""
    encoded = value.encode()
    length = len(encoded)
    return (POSITIVE[length] if length < SMALL else _varint(length)) + encoded


def double(value: float) -> bytes:
    """Eight bytes."""
    return DOUBLE(value)


def maybe_double(value: float | None) -> bytes:
    """Of the union of null and double."""
    return NULL if value is None else b"\x02" + double(value)


def boolean(value: bool) -> bytes:
    """One byte."""
    return b"\x01" if value else b"\x00"


def array(items: Sequence[bytes]) -> bytes:
    """One block of encoded items."""
    return long(len(items)) + b"".join(items) + END if items else END


def mapping(values: Mapping[str, Value], item: Callable[[Value], bytes]) -> bytes:
    """One block of text and item, in the mapping's own order."""
    return array([text(key) + item(value) for key, value in values.items()])


def again(value: Binary) -> bytes:
    """A record that many events of a stream share: encoded once for as long as it is the very same object."""
    last = WRITTEN.get(type(value))
    if last is None or last[0] is not value:
        last = WRITTEN[type(value)] = (value, value.binary())
    return last[1]


class Reader:
    """A datum, value by value from its beginning.

    Raises IndexError, ValueError or struct.error where the bytes are no such value. A value cut off at the end may come
    back short: only when `at` is the length of `data` in the end was the datum whole.
    """

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def long(self) -> int:
        """A 64-bit integer."""
        data, at = self.data, self.at + 1
        byte = data[at - 1]
        if byte < 0x80:
            self.at = at
            return byte >> 1 ^ -(byte & 1)
        rest = shift = 0
        while byte > 0x7F and shift < LAST_SHIFT:  # or a row of such bytes would make a number as long as itself
            rest |= (byte & 0x7F) << shift
            shift += 7
            byte = data[at]
            at += 1
        self.at = at
        rest |= byte << shift
        if rest >= 2 * LONGEST:
            raise ValueError("more than 64 bits")
        return rest >> 1 ^ -(rest & 1)

    def int32(self) -> int:
        """A 32-bit integer."""
        byte = self.data[self.at]
        if byte < 0x80:
            self.at += 1
            return byte >> 1 ^ -(byte & 1)
        number = self.long()
        if not -INT_MAX <= number < INT_MAX:
            raise ValueError(f"{number} does not fit into 32 bits")
        return number

    def length(self) -> int:
        """Of what follows, or the index of a symbol."""
        number = self.long()
        if number < 0:
            raise ValueError(f"{number} is no length")
        return number

    def text(self) -> str:
        """A string."""
        byte = self.data[self.at]
        if byte & 0x81:
            return self.bytes().decode()
        start = self.at + 1
        self.at = start + (byte >> 1)
        return self.data[start : self.at].decode()

    def bytes(self) -> bytes:
        """Bytes."""
        byte = self.data[self.at]
        if byte & 0x81:  # longer than 63, or negative
            size = self.length()
            start = self.at
        else:
            size = byte >> 1
            start = self.at + 1
        self.at = start + size
        return self.data[start : self.at]

    def double(self) -> float:
        """Eight bytes."""
        (value,) = READ_DOUBLE(self.data, self.at)
        self.at += 8
        return float(value)

    def maybe_double(self) -> float | None:
        """Of the union of null and double."""
        return self.double() if self.branch() else None

    def boolean(self) -> bool:
        """One byte."""
        byte = self.data[self.at]
        self.at += 1
        return byte != 0

    def branch(self) -> int:
        """Which of the two types of a union follows."""
        byte = self.data[self.at]
        self.at += 1
        if byte == 0:
            return 0
        if byte != 2:
            raise ValueError(f"{byte:#x} is no branch")
        return 1

    def again(self, kind: type[ReadValue]) -> ReadValue:
        """A record that many events of a stream share: where the same bytes follow as last time, the same object."""
        last = READ.get(kind)
        if last is not None and self.data.startswith(last[0], self.at):
            self.at += len(last[0])
            return cast("ReadValue", last[1])
        start = self.at
        value = kind.read(self)
        if self.at <= len(self.data):  # else it was cut off
            READ[kind] = (self.data[start : self.at], value)
        return value

    def array(self, item: Callable[["Reader"], Value]) -> tuple[Value, ...]:
        """Items of one type."""
        items: list[Value] = []
        while count := self._block():
            items += [item(self) for _ in range(count)]
        return tuple(items)

    def mapping(self, item: Callable[["Reader"], Value]) -> dict[str, Value]:
        """Items of one type by text."""
        items: dict[str, Value] = {}
        while count := self._block():
            for _ in range(count):
                key = self.text()
                items[key] = item(self)
        return items

    def _block(self) -> int:
        """Items in the block that follows; other writers may put its size in bytes behind a negative count."""
        count = self.long()
        if count < 0:
            self.length()
        return abs(count)
