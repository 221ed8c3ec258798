"""The second source of weights: a directory."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from claw_r1.weights.checkpoint import write
from claw_r1.weights.errors import DigestMismatch, ManifestMismatch
from claw_r1.weights.host_copies import HostCopies
from claw_r1.weights.manifest import ITEM_BYTES, WeightsManifest
from claw_r1.weights.snapshot import WeightsSnapshot
from claw_r1.weights.sources import FromDirectory
from tests.weights.tensors import same, take

TENSORS = {"b": torch.arange(6.0).view(2, 3), "a": torch.ones(2, dtype=torch.bfloat16)}


def test_a_checkpoint_gives_the_manifests_tensors_in_order(tmp_path: Path) -> None:
    """Tensors come in manifest order from any number of files, by path and by file uri."""
    save_file({"b": TENSORS["b"]}, tmp_path / "model-00001.safetensors")
    save_file({"a": TENSORS["a"]}, tmp_path / "model-00002.safetensors")
    manifest = WeightsManifest.of(TENSORS.items())
    for uri in (str(tmp_path), tmp_path.as_uri()):
        assert same(take(HostCopies(tmp_path / "copies"), manifest, FromDirectory(uri)), list(TENSORS.items()))


def test_a_checkpoint_of_other_bytes_is_refused(tmp_path: Path) -> None:
    """A directory that was overwritten by another version is never loaded under this one's number."""
    save_file({**TENSORS, "b": TENSORS["b"] + 1}, tmp_path / "model.safetensors")
    with pytest.raises(DigestMismatch):
        take(HostCopies(tmp_path / "copies"), WeightsManifest.of(TENSORS.items()), FromDirectory(str(tmp_path)))


def test_a_checkpoint_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    """A missing directory, a broken file and a remote uri are all errors of this room."""
    manifest = WeightsManifest.of(TENSORS.items())
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "model.safetensors").write_bytes(b"no tensors")
    for uri in (str(tmp_path / "missing"), str(tmp_path / "broken"), "s3://bucket/model"):
        with pytest.raises(ManifestMismatch):
            take(HostCopies(tmp_path / "copies"), manifest, FromDirectory(uri))


def test_what_is_written_is_read_by_the_library(tmp_path: Path) -> None:
    """Every dtype, empty and zero-dimensional tensors, in one file."""
    tensors = {name: torch.ones(3, 5).to(getattr(torch, name)) for name in ITEM_BYTES}
    tensors |= {"empty": torch.empty(0, 4), "scalar": torch.tensor(7), "strided": torch.arange(12.0).view(3, 4).t()}
    snapshot = WeightsSnapshot.of(tensors.items())
    write(tmp_path, snapshot)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    loaded = load_file(tmp_path / "model.safetensors")
    assert loaded.keys() == tensors.keys()
    assert all(torch.equal(loaded[n].float(), t.float()) and loaded[n].dtype == t.dtype for n, t in tensors.items())
    assert same(
        take(HostCopies(tmp_path / "copies"), snapshot.manifest, FromDirectory(str(tmp_path))), [*tensors.items()]
    )


def test_shards_are_cut_as_save_pretrained_cuts_them(tmp_path: Path) -> None:
    """A file holds as much as fits, a larger tensor has its own, and the index names the file of each tensor."""
    tensors = {name: torch.full((size,), 1.0) for name, size in (("a", 4), ("b", 4), ("c", 40), ("d", 4))}
    snapshot = WeightsSnapshot.of(tensors.items())
    write(tmp_path, snapshot, shard_bytes_max=32)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == snapshot.manifest.bytes_total
    first, second, third = (f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3))
    assert index["weight_map"] == {"a": first, "b": first, "c": second, "d": third}
    assert {name: path for path in (first, second, third) for name in load_file(tmp_path / path)} == index["weight_map"]
    assert same(
        take(HostCopies(tmp_path / "copies"), snapshot.manifest, FromDirectory(str(tmp_path))), [*tensors.items()]
    )
