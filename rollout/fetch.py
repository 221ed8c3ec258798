"""Gets a published version into this host's memory, verified, while the engine samples on."""

import asyncio
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rollout.errors import SourceFailed
from rollout.settings import RolloutSettings
from schemas.events import WeightsPublished
from weights.deadline import Deadline
from weights.errors import WeightsError
from weights.host_copies import HostCopies, HostCopy
from weights.manifest import TensorShape, WeightsManifest
from weights.sources import FromDirectory, FromTrainer

MEMORY = Path("/dev/shm")  # noqa: S108  # the memory file system of Linux; the directory in it is the user's own


@dataclass(frozen=True, slots=True)
class Fetched:
    """A version that is ready to be loaded."""

    copy: HostCopy
    manifest: WeightsManifest
    source: str
    seconds: float


async def fetch(settings: RolloutSettings, target: WeightsPublished) -> Fetched:
    """From the first source that has it. Raises SourceFailed with every reason; cancelling ends it at once."""
    manifest = manifest_of(target)
    began = time.monotonic()
    reasons: list[str] = []
    for source in _sources(settings, target):
        deadline = Deadline(settings.fetch_timeout_s + manifest.bytes_total / (settings.fetch_mb_per_s * 1e6))
        try:
            copies = HostCopies(settings.copies_dir or default_directory(manifest.bytes_flat))
            copy = await asyncio.to_thread(copies.take, manifest, source, deadline)
        except asyncio.CancelledError:
            deadline.cancel()
            raise
        except (WeightsError, OSError) as error:
            reasons.append(f"{source.name}: {error}")
            continue
        return Fetched(copy, manifest, source.name, time.monotonic() - began)
    raise SourceFailed("; ".join(reasons) or "the event names neither a trainer nor a checkpoint")


def manifest_of(target: WeightsPublished) -> WeightsManifest:
    """Of the committed event: it alone says which bytes are this version's."""
    tensors = (TensorShape(tensor.name, tensor.dtype, tuple(tensor.shape)) for tensor in target.manifest)
    return WeightsManifest(tuple(tensors), target.digest)


def default_directory(nbytes: int) -> Path:
    """In memory where it has room for a copy (containers often have 64 MB of it), else among temporary files."""
    has_room = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > nbytes
    return (MEMORY if has_room else Path(tempfile.gettempdir())) / f"claw-weights-{os.getuid()}"


def _sources(settings: RolloutSettings, target: WeightsPublished) -> list[FromTrainer | FromDirectory]:
    sources: list[FromTrainer | FromDirectory] = []
    if target.offer_url is not None:
        sources.append(
            FromTrainer(
                target.offer_url,
                target.run_id,
                target.version,
                worker_id=settings.worker_id,
                connect_timeout_s=settings.offer_timeout_s,
            )
        )
    if target.checkpoint_uri is not None:
        sources.append(FromDirectory(target.checkpoint_uri))
    return sources
