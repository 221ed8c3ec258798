"""Plans and packing: pure, so they are tested by properties."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from claw_r1.weights import buckets
from claw_r1.weights.errors import ManifestMismatch
from claw_r1.weights.manifest import WeightsManifest, memory_of
from claw_r1.weights.snapshot import WeightsSnapshot

DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
shapes = st.lists(st.integers(0, 7), max_size=3).map(tuple)
models = st.lists(st.tuples(shapes, st.sampled_from(DTYPES)), max_size=8)


def make(rows: list[tuple[tuple[int, ...], torch.dtype]]) -> list[tuple[str, torch.Tensor]]:
    torch.manual_seed(0)
    return [(f"t{i}", (torch.randn(shape) * 100).to(dtype)) for i, (shape, dtype) in enumerate(rows)]


@given(rows=models, limit=st.sampled_from([16, 32, 48, 1024]))
def test_what_is_packed_can_be_read(rows: list[tuple[tuple[int, ...], torch.dtype]], limit: int) -> None:
    """Any tensors of any dtype lie in buckets of any size with all their bytes, and no bucket exceeds its limit."""
    tensors = make(rows)
    snapshot = WeightsSnapshot.of(tensors, limit)
    assert snapshot.manifest == WeightsManifest.of(tensors)
    assert [b"".join(parts) for _, parts in snapshot.tensors()] == [bytes(memory_of(tensor)) for _, tensor in tensors]
    assert all(bucket.size <= limit for bucket in snapshot.layout)
    assert all(piece.target % buckets.ALIGNMENT_BYTES == 0 for bucket in snapshot.layout for piece in bucket.pieces)


def test_only_a_tensor_larger_than_a_bucket_is_split() -> None:
    """A tensor that fits one bucket lies in one bucket."""
    packing = buckets.Packing(64)
    assert [[(number, p.source, p.length) for number, p in packing.place(size)] for size in (40, 40, 100)] == [
        [(0, 0, 40)],
        [(1, 0, 40)],
        [(2, 0, 64), (3, 64, 36)],
    ]


@pytest.mark.parametrize("limit", [0, -16, 24])
def test_a_bucket_that_breaks_alignment_is_refused(limit: int) -> None:
    """A limit that is no positive multiple of the alignment is an error, not a misaligned view later."""
    with pytest.raises(ValueError, match="bucket_bytes_max"):
        buckets.Packing(limit)


def test_a_manifest_survives_json() -> None:
    """The JSON form is lossless, and something else is refused as no manifest."""
    manifest = WeightsManifest.of(make([((2, 3), torch.bfloat16), ((), torch.int64)]))
    assert WeightsManifest.from_json(manifest.to_json()) == manifest
    with pytest.raises(ManifestMismatch):
        WeightsManifest.from_json({"digest": "x", "tensors": [{"name": "a"}]})
