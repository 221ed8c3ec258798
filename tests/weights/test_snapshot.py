"""One pass over the tensors, memory that is used again, and never while somebody reads it."""

from collections.abc import Iterator

import torch

from weights.manifest import WeightsManifest, memory_of
from weights.snapshot import Snapshots

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
