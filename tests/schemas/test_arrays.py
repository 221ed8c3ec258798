"""Token ids and log-probabilities as bytes."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_r1.schemas.arrays import count, pack_floats, pack_ids, unpack_floats, unpack_ids

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
FLOAT32 = st.floats(width=32, allow_nan=False)


@given(st.lists(INT32, max_size=50))
def test_ids_come_back(ids: list[int]) -> None:
    """Ids are little-endian int32, four bytes each, and come back equal."""
    data = pack_ids(ids)
    assert data == struct.pack(f"<{len(ids)}i", *ids)
    assert unpack_ids(data) == ids
    assert count(data) == len(ids)


@given(st.lists(FLOAT32, max_size=50))
def test_floats_come_back(values: list[float]) -> None:
    """Log-probabilities are little-endian float32; values that float32 holds come back equal, -inf too."""
    data = pack_floats(values)
    assert data == struct.pack(f"<{len(values)}f", *values)
    assert unpack_floats(data) == values


@pytest.mark.parametrize("broken", [b"\x00", b"12345", b"123"])
def test_a_torn_array_is_an_error(broken: bytes) -> None:
    """A length that is no multiple of four raises ValueError everywhere."""
    for reader in (unpack_ids, unpack_floats, count):
        with pytest.raises(ValueError, match="bytes"):
            reader(broken)


def test_ids_outside_int32_and_non_numbers_are_refused() -> None:
    """Nothing is cut off silently."""
    with pytest.raises(OverflowError):
        pack_ids([1 << 31])
    with pytest.raises(TypeError):
        pack_ids([1.5])  # type: ignore[list-item]  # wrong on purpose
    with pytest.raises(TypeError):
        pack_floats(["x"])  # type: ignore[list-item]  # wrong on purpose
