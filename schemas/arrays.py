"""Token ids and log-probabilities as bytes: little-endian int32 and float32.

Avro `bytes` cost 250 times less CPU than `array<int>` (architecture, "Events"); readers that do not need the numbers
leave them packed.
"""

import struct
import sys
from array import array
from collections.abc import Iterable

ITEM_BYTES = 4


def pack_ids(ids: Iterable[int]) -> bytes:
    """Token ids [n] -> 4n bytes. Raises OverflowError for an id outside int32, TypeError for a non-integer."""
    items = ids if isinstance(ids, list) else list(ids)
    try:
        return struct.pack(f"<{len(items)}i", *items)  # in half the time
    except struct.error:
        return _little_endian(array("i", items)).tobytes()  # raises what a caller expects


def unpack_ids(data: bytes) -> list[int]:
    """4n bytes -> token ids [n]. Raises ValueError when the length is no multiple of 4."""
    ids = array("i")
    ids.frombytes(data)
    return _little_endian(ids).tolist()


def pack_floats(values: Iterable[float]) -> bytes:
    """Floats [n] -> 4n bytes of float32 (rounded to nearest). Raises TypeError for a non-number."""
    items = values if isinstance(values, list) else list(values)
    try:
        return struct.pack(f"<{len(items)}f", *items)
    except (struct.error, OverflowError):
        return _little_endian(array("f", items)).tobytes()


def unpack_floats(data: bytes) -> list[float]:
    """4n bytes -> floats [n]. Raises ValueError when the length is no multiple of 4."""
    values = array("f")
    values.frombytes(data)
    return _little_endian(values).tolist()


def count(data: bytes) -> int:
    """Number of packed items. Raises ValueError when the length is no multiple of 4."""
    whole, rest = divmod(len(data), ITEM_BYTES)
    if rest:
        raise ValueError(f"{len(data)} bytes are no whole number of {ITEM_BYTES}-byte items")
    return whole


def _little_endian(items: array) -> array:  # type: ignore[type-arg]  # both arrays pass through unchanged in kind
    if sys.byteorder == "big":
        items.byteswap()
    return items
