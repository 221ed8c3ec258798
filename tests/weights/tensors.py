"""Tensors of versions, and a directory source for them, shared by the tests of this room."""

import tempfile
from pathlib import Path

import torch

from claw_r1.weights.deadline import Deadline
from claw_r1.weights.host_copies import HostCopies, HostCopy, OpenSource, tensors
from claw_r1.weights.manifest import WeightsManifest
from claw_r1.weights.sources import FromDirectory, FromTrainer
from claw_r1.weights.transfer_server import TransferServer

Tensors = list[tuple[str, torch.Tensor]]


def tensors_of(seed: int) -> Tensors:
    """Several dtypes, an empty and a scalar tensor, a strided one, and one of several pages."""
    g = torch.Generator().manual_seed(seed)
    return [
        ("embed", torch.randn(300, 17, generator=g)),
        ("half", torch.randn(33, generator=g).to(torch.bfloat16)),
        ("strided", torch.randn(8, 6, generator=g).t()),
        ("scalar", torch.tensor(seed)),
        ("empty", torch.empty(0, 4)),
        ("mask", torch.rand(9, generator=g) > 0.5),
    ]


def source_of(server: TransferServer, version: int, run_id: str = "run") -> FromTrainer:
    return FromTrainer(server.url, run_id, version, worker_id="w", connect_timeout_s=5)


def take(copies: HostCopies, manifest: WeightsManifest, source: OpenSource, seconds: float = 30) -> HostCopy:
    return copies.take(manifest, source, Deadline(seconds))


def read(uri: str, manifest: WeightsManifest) -> dict[str, torch.Tensor]:
    """What a worker loads from a directory: raises unless names, shapes, dtypes and bytes are those of the manifest."""
    with tempfile.TemporaryDirectory() as folder:
        copy = take(HostCopies(Path(folder)), manifest, FromDirectory(uri))
        loaded = {name: tensor.clone() for name, tensor in tensors(copy.path, manifest)}
        copy.close()
    return loaded


def same(copy: HostCopy, expected: Tensors) -> bool:
    """Whether the copy has these names, dtypes, shapes and bytes, in this order."""
    loaded = list(tensors(copy.path, WeightsManifest.of(expected)))
    return [name for name, _ in loaded] == [name for name, _ in expected] and all(
        a.dtype == b.dtype and torch.equal(a, b) for (_, a), (_, b) in zip(loaded, expected, strict=True)
    )
