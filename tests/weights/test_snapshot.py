"""One pass over the tensors, memory that is used again, and never while somebody reads it."""

import hashlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from claw_r1.weights.errors import NotStaged
from claw_r1.weights.manifest import WeightsManifest, memory_of
from claw_r1.weights.snapshot import Snapshots
from claw_r1.weights.staging import Staging, Stagings

Tensors = list[tuple[str, torch.Tensor]]


def version(number: int) -> Tensors:
    return [("a", torch.full((100,), float(number))), ("b", torch.full((7,), number, dtype=torch.bfloat16))]


def test_each_tensor_is_asked_for_once() -> None:
    """The manifest is a by-product of the pass; the tensors may change as soon as it is over."""
    tensors, passes = version(1), []

    def once() -> Iterator[tuple[str, torch.Tensor]]:
        passes.append(1)
        yield from tensors

    snapshot = Snapshots(64).take(once())
    assert snapshot.manifest == WeightsManifest.of(tensors)
    before = b"".join(memory_of(tensor) for _, tensor in tensors)
    for _, tensor in tensors:
        tensor.zero_()
    assert b"".join(part for _, parts in snapshot.tensors() for part in parts) == before
    assert passes == [1]


def test_memory_is_used_again_once_nobody_holds_it() -> None:
    """Three versions in turn live in the memory of two; one that is held keeps its bytes."""
    snapshots = Snapshots(64)
    held = snapshots.take(version(1))
    dropped = snapshots.take(version(2))
    places = {flat.data_ptr() for flat in dropped.buckets}
    del dropped
    third = snapshots.take(version(3))
    assert {flat.data_ptr() for flat in third.buckets} == places
    assert not places & {flat.data_ptr() for flat in held.buckets}
    assert held.manifest == WeightsManifest.of(version(1))
    assert b"".join(part for _, parts in held.tensors() for part in parts) == b"".join(
        memory_of(tensor) for _, tensor in version(1)
    )


def test_who_takes_a_snapshot_does_not_hash_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes are hashed by another thread, in their order; the manifest waits for the last of them, and nothing else does."""
    threads, may_hash, sha256 = set[int](), threading.Event(), hashlib.sha256

    class Recording:
        def __init__(self) -> None:
            self._sha = sha256()

        def update(self, data: Any) -> None:
            may_hash.wait()
            threads.add(threading.get_ident())
            self._sha.update(data)

        def hexdigest(self) -> str:
            return self._sha.hexdigest()

    monkeypatch.setattr("claw_r1.weights.snapshot.hashlib.sha256", Recording)
    snapshot = Snapshots(64).take(version(3))
    stagings = Stagings()
    stagings.add(Staging("run", 1, snapshot))
    with pytest.raises(NotStaged):
        stagings.get("run", 2, "any")
    copied = b"".join(part for _, parts in snapshot.tensors() for part in parts)
    assert not snapshot.digest.done()
    may_hash.set()
    digest = snapshot.manifest.digest
    monkeypatch.undo()
    assert digest == hashlib.sha256(copied).hexdigest() == WeightsManifest.of(version(3)).digest
    assert threads
    assert threading.get_ident() not in threads
    assert stagings.get("run", 1, digest).snapshot is snapshot
