"""Flat copies of any tensors, by properties."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from claw_r1.weights.errors import ManifestMismatch
from claw_r1.weights.manifest import ALIGNMENT_BYTES, WeightsManifest, memory_of
from claw_r1.weights.snapshot import WeightsSnapshot

DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
shapes = st.lists(st.integers(0, 7), max_size=3).map(tuple)
models = st.lists(st.tuples(shapes, st.sampled_from(DTYPES)), max_size=8)


def make(rows: list[tuple[tuple[int, ...], torch.dtype]]) -> list[tuple[str, torch.Tensor]]:
    torch.manual_seed(0)
    return [(f"t{i}", (torch.randn(shape) * 100).to(dtype)) for i, (shape, dtype) in enumerate(rows)]


@given(rows=models)
def test_what_was_copied_can_be_read(rows: list[tuple[tuple[int, ...], torch.dtype]]) -> None:
    """Any tensors of any dtype lie in the flat file with all their bytes, each where the manifest says."""
    tensors = make(rows)
    snapshot = WeightsSnapshot.of(tensors)
    assert snapshot.manifest == WeightsManifest.of(tensors)
    assert [bytes(content) for _, content in snapshot.tensors()] == [bytes(memory_of(tensor)) for _, tensor in tensors]
    with Path(snapshot.file.path).open("rb") as file:
        flat = file.read()
    ends = [begin + tensor.nbytes for tensor, begin in snapshot.manifest.offsets()]
    assert all(begin % ALIGNMENT_BYTES == 0 for _, begin in snapshot.manifest.offsets())
    assert flat[: snapshot.manifest.bytes_flat].rstrip(b"\0") == flat[: max(ends, default=0)].rstrip(b"\0")
    assert flat[snapshot.manifest.bytes_flat :] == snapshot.manifest.digest.encode()


def test_a_manifest_survives_json() -> None:
    """The JSON form is lossless, and something else is refused as no manifest."""
    manifest = WeightsManifest.of(make([((2, 3), torch.bfloat16), ((), torch.int64)]))
    assert WeightsManifest.from_json(manifest.to_json()) == manifest
    with pytest.raises(ManifestMismatch):
        WeightsManifest.from_json({"digest": "x", "tensors": [{"name": "a"}]})
