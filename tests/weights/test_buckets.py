"""Plans and packing: pure, so they are tested by properties."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from weights import buckets
from weights.errors import DigestMismatch, ManifestMismatch
from weights.manifest import TensorShape, WeightsManifest, verified
from weights.snapshot import WeightsSnapshot

DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
shapes = st.lists(st.integers(0, 7), max_size=3).map(tuple)
models = st.lists(st.tuples(shapes, st.sampled_from(DTYPES)), max_size=8)


def make(rows: list[tuple[tuple[int, ...], torch.dtype]]) -> list[tuple[str, torch.Tensor]]:
    torch.manual_seed(0)
    return [(f"t{i}", (torch.randn(shape) * 100).to(dtype)) for i, (shape, dtype) in enumerate(rows)]


@given(rows=models, limit=st.sampled_from([16, 32, 48, 1024]))
def test_what_is_packed_is_unpacked(rows: list[tuple[tuple[int, ...], torch.dtype]], limit: int) -> None:
    """Any tensors of any dtype pass through buckets of any size unchanged, and no bucket exceeds its limit."""
    tensors = make(rows)
    manifest = WeightsManifest.of(tensors)
    layout = buckets.plan(manifest.tensors, limit)
    snapshot = WeightsSnapshot.of(tensors, limit)
    assert (snapshot.manifest, snapshot.layout) == (manifest, layout)
    got = list(verified(buckets.unpack(snapshot.buckets, manifest.tensors, layout), manifest))
    assert [name for name, _ in got] == [name for name, _ in tensors]
    assert all(a.dtype == b.dtype and torch.equal(a, b) for (_, a), (_, b) in zip(got, tensors, strict=True))
    assert all(bucket.size <= limit for bucket in layout)
    assert all(piece.target % buckets.ALIGNMENT_BYTES == 0 for bucket in layout for piece in bucket.pieces)


def test_only_a_tensor_larger_than_a_bucket_is_split() -> None:
    """A tensor that fits one bucket lies in one bucket, so that it can be used without a copy."""
    layout = buckets.plan([TensorShape("a", "uint8", (40,)), TensorShape("b", "uint8", (40,))], 64)
    assert [[(p.tensor, p.length) for p in bucket.pieces] for bucket in layout] == [[(0, 40)], [(1, 40)]]
    split = buckets.plan([TensorShape("a", "uint8", (100,))], 64)
    assert [[(p.source, p.length) for p in bucket.pieces] for bucket in split] == [[(0, 64)], [(64, 36)]]


@pytest.mark.parametrize("limit", [0, -16, 24])
def test_a_bucket_that_breaks_alignment_is_refused(limit: int) -> None:
    """A limit that is no positive multiple of the alignment is an error, not a misaligned view later."""
    with pytest.raises(ValueError, match="bucket_bytes_max"):
        buckets.plan([], limit)


def test_a_changed_byte_is_noticed() -> None:
    """Tensors of the right shape with other bytes fail the digest after the last one."""
    tensors = make([((3,), torch.float32), ((2,), torch.float32)])
    manifest = WeightsManifest.of(tensors)
    tensors[1][1][0] += 1
    with pytest.raises(DigestMismatch):
        list(verified(tensors, manifest))


@pytest.mark.parametrize("change", ["name", "shape", "dtype", "missing", "extra"])
def test_tensors_that_are_not_the_manifests_are_refused(change: str) -> None:
    """A difference in name, shape, dtype or number stops receiving."""
    tensors = make([((3,), torch.float32), ((2,), torch.float32)])
    manifest = WeightsManifest.of(tensors)
    name, tensor = tensors.pop()
    replacement = {
        "name": [("other", tensor)],
        "shape": [(name, tensor[:1])],
        "dtype": [(name, tensor.to(torch.float64))],
        "missing": [],
        "extra": [(name, tensor), ("more", tensor)],
    }
    tensors += replacement[change]
    with pytest.raises(ManifestMismatch):
        list(verified(tensors, manifest))


def test_a_manifest_survives_json() -> None:
    """The JSON form is lossless, and something else is refused as no manifest."""
    manifest = WeightsManifest.of(make([((2, 3), torch.bfloat16), ((), torch.int64)]))
    assert WeightsManifest.from_json(manifest.to_json()) == manifest
    with pytest.raises(ManifestMismatch):
        WeightsManifest.from_json({"digest": "x", "tensors": [{"name": "a"}]})
