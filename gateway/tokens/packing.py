"""Token ids and log-probabilities of others, packed or to be packed. What is none of them is None."""

from claw_r1.schemas.arrays import ITEM_BYTES, pack_floats, pack_ids, unpack_floats
from claw_r1.schemas.json_values import Json

FLOAT32_MAX = (2 - 2**-23) * 2.0**127
SIGNS = slice(ITEM_BYTES - 1, None, ITEM_BYTES)
"""The highest byte of each packed number."""
BELOW_ZERO = bytes(range(0x80, 0xFF))
"""Highest bytes of float32 that are below 0, and neither infinite nor no number."""


def packed_ids(ids: Json) -> bytes | None:
    """Token ids as int32; None when they are no list of int32 from 0 up."""
    if not isinstance(ids, list) or bool in map(type, ids):
        return None
    try:
        packed = pack_ids(ids)
    except (TypeError, OverflowError):
        return None
    return packed if packed[SIGNS].isascii() else None  # the highest bit of an id is its sign


def packed_logprobs(values: Json) -> bytes | None:
    """Log-probabilities as float32; None when one of them is above 0, or nothing that a float32 holds."""
    try:
        packed = pack_floats(values)
    except (TypeError, OverflowError):
        return None
    unclear = packed[SIGNS].translate(None, BELOW_ZERO)  # looking at every value costs more than all the rest here
    return packed if not unclear or all(map(_is_logprob, values)) else None


def are_ids(packed: bytes) -> bool:
    """Returns whether these bytes are token ids: int32 from 0 up."""
    return len(packed) % ITEM_BYTES == 0 and packed[SIGNS].isascii()


def are_logprobs(packed: bytes) -> bool:
    """Returns whether these bytes are log-probabilities: float32 that are finite and not above 0."""
    if len(packed) % ITEM_BYTES:
        return False
    return not packed[SIGNS].translate(None, BELOW_ZERO) or all(map(_is_logprob, unpack_floats(packed)))


def _is_logprob(value: float) -> bool:
    return type(value) is not bool and -FLOAT32_MAX <= value <= 0
