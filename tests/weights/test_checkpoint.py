"""The second source of weights: a directory."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from weights.checkpoint import read
from weights.errors import DigestMismatch, ManifestMismatch
from weights.manifest import WeightsManifest

TENSORS = {"b": torch.arange(6.0).view(2, 3), "a": torch.ones(2, dtype=torch.bfloat16)}


def test_a_checkpoint_gives_the_manifests_tensors_in_order(tmp_path: Path) -> None:
    """Tensors come in manifest order from any number of files, by path and by file uri."""
    save_file({"b": TENSORS["b"]}, tmp_path / "model-00001.safetensors")
    save_file({"a": TENSORS["a"]}, tmp_path / "model-00002.safetensors")
    manifest = WeightsManifest.of(TENSORS.items())
    for uri in (str(tmp_path), tmp_path.as_uri()):
        assert [name for name, _ in read(uri, manifest)] == ["b", "a"]


def test_a_checkpoint_of_other_bytes_is_refused(tmp_path: Path) -> None:
    """A directory that was overwritten by another version is never loaded under this one's number."""
    save_file({**TENSORS, "b": TENSORS["b"] + 1}, tmp_path / "model.safetensors")
    with pytest.raises(DigestMismatch):
        list(read(str(tmp_path), WeightsManifest.of(TENSORS.items())))


def test_a_checkpoint_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    """A missing directory, a broken file and a remote uri are all errors of this room."""
    manifest = WeightsManifest.of(TENSORS.items())
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "model.safetensors").write_bytes(b"no tensors")
    for uri in (str(tmp_path / "missing"), str(tmp_path / "broken"), "s3://bucket/model"):
        with pytest.raises(ManifestMismatch):
            list(read(uri, manifest))
