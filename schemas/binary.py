"""Avro's binary encoding: what the generated `binary()` and `read()` of each event are made of. The frequent values (short
texts, small numbers) are written out in each event, because a call takes longer than they do.

Invariant: the bytes are those that fastavro writes, and are read as fastavro reads them (tests compare them); only the
way is shorter, because an event knows its types, no union has to be guessed and no dict stands between. Each function
raises TypeError, ValueError or AttributeError for a value of another type; `codec` makes one kind of error of them.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, cast

Value = TypeVar("Value")
Read = Callable[[bytes, int], tuple[Value, int]]
"""Takes the value that begins at an index of a datum: the value, and the index behind it.

Raises IndexError, ValueError or struct.error where the bytes are no such value. A value cut off at the end may come back
short: only when the last index is the length of the datum was it whole.
"""


class Binary(Protocol):
    """A record that can be written."""

    def binary(self) -> bytes: ...


class Readable(Protocol):
    """A record that can be read."""

    @staticmethod
    def read(d: bytes, at: int) -> tuple[Any, int]: ...  # a static method knows no Self


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
DOUBLE = struct.Struct("<d").pack
READ_DOUBLE = struct.Struct("<d").unpack_from
INT_MAX = 2**31
TIME_MIN, TIME_MAX = 1 << 49, 1 << 56
"""What has eight bytes."""
HALF = (1 << 28) - 1
CONTINUED = 0x8080808080808080
EIGHT_BYTES = 0x0080808080808080
"""Each byte but the last says that another one follows."""

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


def time(number: int) -> bytes:
    """As `long`, of what is a time in microseconds as a rule: eight bytes."""
    rest = number << 1
    if not TIME_MIN <= rest < TIME_MAX:
        return long(number)
    low, high = rest & HALF, rest >> 28
    return MORE[low & 2 * SMALL - 1] + MORE[low >> 14] + MORE[high & 2 * SMALL - 1] + LAST[high >> 14]


class Lengths(dict[int, bytes]):
    """Encoded lengths; the usual ones are made once."""

    def __missing__(self, length: int) -> bytes:
        return _varint(length)


LENGTH = Lengths(enumerate(POSITIVE))


def text(value: str) -> bytes:
    """UTF-8 after its length."""
    encoded = value.encode()
    return LENGTH[len(encoded)] + encoded


def maybe_double(value: float | None) -> bytes:
    """Of the union of null and double."""
    return NULL if value is None else b"\x02" + DOUBLE(value)


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


def number(d: bytes, at: int) -> tuple[int, int]:
    """An integer of 64 bits before its zigzag is undone."""
    rest = shift = 0
    # Or a row of such bytes would make a number as long as itself.
    while (byte := d[at]) > 0x7F and shift < LAST_SHIFT:
        rest |= (byte & 0x7F) << shift
        shift += 7
        at += 1
    rest |= byte << shift
    if rest >= 2 * LONGEST:
        raise ValueError("more than 64 bits")
    return rest, at + 1


def number32(d: bytes, at: int) -> tuple[int, int]:
    """An integer of 32 bits before its zigzag is undone."""
    rest, at = number(d, at)
    if rest >= 2 * INT_MAX:
        raise ValueError("more than 32 bits")
    return rest, at


def read_time(d: bytes, at: int) -> tuple[int, int]:
    """As `number`, of the eight bytes that a time in microseconds has: their bits are drawn together in pairs."""
    word = int.from_bytes(d[at : at + 8], "little")
    if word & CONTINUED != EIGHT_BYTES:
        return number(d, at)
    word = word & 0x7F007F007F007F | word >> 1 & 0x3F803F803F803F80
    word = word & 0x3FFF00003FFF | word >> 2 & 0xFFFC0000FFFC000
    return word & 0xFFFFFFF | word >> 4 & 0xFFFFFFF0000000, at + 8


def read_long(d: bytes, at: int) -> tuple[int, int]:
    """A 64-bit integer."""
    rest, at = number(d, at)
    return rest >> 1 ^ -(rest & 1), at


def read_int32(d: bytes, at: int) -> tuple[int, int]:
    """A 32-bit integer."""
    rest, at = number32(d, at)
    return rest >> 1 ^ -(rest & 1), at


def read_length(d: bytes, at: int) -> tuple[int, int]:
    """Of what follows, or the index of a symbol. One or two bytes as a rule."""
    rest, following = d[at], at + 1
    if rest > 0x7F:
        high = d[following]
        rest, following = (rest & 0x7F | high << 7, following + 1) if high < 0x80 else number(d, at)
    if rest & 1:
        raise ValueError(f"{-(rest >> 1) - 1} is no length")
    return rest >> 1, following


def read_text(d: bytes, at: int) -> tuple[str, int]:
    """A string."""
    length, start = read_length(d, at)
    at = start + length
    return d[start:at].decode(), at


def read_double(d: bytes, at: int) -> tuple[float, int]:
    """Eight bytes."""
    return READ_DOUBLE(d, at)[0], at + 8


def read_maybe_double(d: bytes, at: int) -> tuple[float | None, int]:
    """Of the union of null and double."""
    if d[at] == 2:  # the second branch
        return read_double(d, at + 1)
    if d[at] == 0:
        return None, at + 1
    raise no_branch(d[at])


def no_branch(byte: int) -> ValueError:
    """What is raised where neither type of a union follows."""
    return ValueError(f"{byte:#x} is no branch")


def read_again(kind: type[ReadValue], d: bytes, at: int) -> tuple[ReadValue, int]:
    """A record that many events of a stream share: where the same bytes follow as last time, the same object."""
    last = READ.get(kind)
    if last is not None and d.startswith(last[0], at):
        return cast("ReadValue", last[1]), at + len(last[0])
    value: ReadValue
    value, end = kind.read(d, at)
    if end <= len(d):  # else it was cut off
        READ[kind] = (d[at:end], value)
    return value, end


def read_array(item: Read[Value], d: bytes, at: int) -> tuple[tuple[Value, ...], int]:
    """Items of one type."""
    items: list[Value] = []
    count, at = _block(d, at)
    while count:
        for _ in range(count):
            value, at = item(d, at)
            items.append(value)
        count, at = _block(d, at)
    return tuple(items), at


def read_mapping(item: Read[Value], d: bytes, at: int) -> tuple[dict[str, Value], int]:
    """Items of one type by text."""
    items: dict[str, Value] = {}
    count, at = _block(d, at)
    while count:
        for _ in range(count):
            key, at = read_text(d, at)
            items[key], at = item(d, at)
        count, at = _block(d, at)
    return items, at


def _block(d: bytes, at: int) -> tuple[int, int]:
    """Items in the block that follows; other writers may put its size in bytes behind a negative count."""
    count = d[at]
    if not count & 0x81:  # a few
        return count >> 1, at + 1
    count, at = read_long(d, at)
    if count < 0:
        at = read_length(d, at)[1]
    return abs(count), at
