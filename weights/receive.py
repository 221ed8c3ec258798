"""The worker's side of a transfer: join as rank 1, receive every bucket, hand out tensors that are proven right."""

from collections.abc import Iterator

import torch

from weights import buckets
from weights.deadline import Deadline
from weights.group import PairGroup
from weights.manifest import WeightsManifest, verified
from weights.rendezvous import Rendezvous


def receive(
    rendezvous: Rendezvous, manifest: WeightsManifest, device: torch.device | str = "cpu"
) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor) in manifest order in host memory; raises a WeightsError, at the latest after `timeout_s`.

    `device` chooses the backend; each bucket leaves it at once, so that a GPU never holds a second model. A wrong
    digest shows only after the last tensor: collect all of them before you overwrite anything.
    """
    return verified(_received(rendezvous, manifest, torch.device(device)), manifest)


def _received(
    rendezvous: Rendezvous, manifest: WeightsManifest, device: torch.device
) -> Iterator[tuple[str, torch.Tensor]]:
    layout = buckets.plan(manifest.tensors, rendezvous.bucket_bytes_max)
    group = PairGroup(rendezvous, 1, device, Deadline(rendezvous.timeout_s))
    try:
        yield from buckets.unpack((_bucket(group, bucket.size) for bucket in layout), manifest.tensors, layout)
        group.acknowledged()
    finally:
        group.close()


def _bucket(group: PairGroup, size: int) -> torch.Tensor:
    flat = torch.empty(size, dtype=torch.uint8, device=group.device)
    if size:
        group.broadcast(flat)
    return flat.cpu()
