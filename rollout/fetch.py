"""Gets a published version into this host's memory, verified, while the engine samples on."""

import asyncio
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from claw_r1.rollout.errors import SourceFailed
from claw_r1.rollout.settings import RolloutSettings
from claw_r1.runtime.tls.pem import weights_files
from claw_r1.schemas.events import WeightsPublished
from claw_r1.schemas.http import adapter_run
from claw_r1.weights.archive import FromArchive
from claw_r1.weights.carry.from_carrier import Carriage, FromCarrier
from claw_r1.weights.checkpoint import ADAPTER_FOLDER
from claw_r1.weights.deadline import Deadline
from claw_r1.weights.errors import WeightsError
from claw_r1.weights.host_copies import CopyRoom, HostCopies, HostCopy, host_directories
from claw_r1.weights.manifest import TensorShape, WeightsManifest
from claw_r1.weights.sources import Base, FromDirectory, FromTrainer

SUMMARY_CHARACTERS_MAX = 300
OTHERS_FIRST_S = 2.0
"""The longest time for which a worker without a carrier leaves the copy to the one of its host that has one."""
POLL_S = 0.02
HERE = "this host's memory"


@dataclass(frozen=True, slots=True)
class Fetched:
    """A version that is ready to be loaded."""

    copy: HostCopy
    manifest: WeightsManifest
    source: str
    seconds: float
    failed: tuple[str, ...] = ()
    """The reasons for which sources before that one did not serve."""

    def summary(self) -> str:
        """The source, and those reasons, in a few words."""
        return "; ".join((self.source, *(f"not by {reason}" for reason in self.failed)))[:SUMMARY_CHARACTERS_MAX]


VersionSource = FromCarrier | FromTrainer | FromArchive | FromDirectory


async def fetch(
    settings: RolloutSettings,
    target: WeightsPublished,
    held: Sequence[Fetched] = (),
    carriage: Carriage | None = None,
    room: CopyRoom | None = None,
) -> Fetched:
    """From the first source that has it. Raises SourceFailed with every reason; cancelling ends it at once.

    held: versions that are here, the newest first: one of these bytes is taken again, one of the same tensors saves most of
    the bytes. carriage: the carrier of this worker, where it has one. room: for the copy.
    """
    began = time.monotonic()
    target = _as_taken(settings, target)
    manifest, reasons = manifest_of(target), list[str]()
    if (copy := _held_copy(held, manifest)) is not None:
        return Fetched(copy, manifest, HERE, time.monotonic() - began)
    alike = next((each for each in held if each.manifest.tensors == manifest.tensors), None)
    sources = _sources(settings, target, alike, carriage)
    while sources:
        source = sources.pop(0)
        try:
            base_s = settings.carry_timeout_s if isinstance(source, FromCarrier) else settings.fetch_timeout_s
            seconds = base_s + manifest.bytes_total / (settings.fetch_mb_per_s * 1e6)
            copies = HostCopies(settings.copies_dir or default_directory(manifest, room), room)
            if isinstance(source, FromCarrier) and not source.carriage.is_wanted(copies.directory):
                await _await_other_worker(copies, manifest)
                continue
            copy = await _take(copies, manifest, source, seconds)
        except (WeightsError, OSError, ValueError) as error:  # whatever an event says, it must not end the worker
            reasons.append(f"{source.name}: {error}")
            if isinstance(source, FromCarrier) and source.is_blamed:
                source.carriage.failed()
            if isinstance(source, FromTrainer | FromArchive) and source.is_patched:  # a patch, or its base, is damaged
                source.base = None
                sources.insert(0, source)
            continue
        if isinstance(source, FromCarrier) and not copy.is_found:
            source.carriage.succeeded()
        return Fetched(copy, manifest, _way(source, copy), time.monotonic() - began, tuple(reasons))
    raise SourceFailed("; ".join(reasons) or "the event names neither a trainer nor a checkpoint")


def _as_taken(settings: RolloutSettings, target: WeightsPublished) -> WeightsPublished:
    """Returns the version as this worker gets it: whole, or its adapter in the place of it. Raises SourceFailed."""
    if not settings.lora_rank_max:
        return target
    if (adapter := target.adapter) is None:
        raise SourceFailed("it has no adapter, and lora_rank_max requires one")
    if adapter.rank > settings.lora_rank_max:
        raise SourceFailed(f"its adapter has rank {adapter.rank}, lora_rank_max is {settings.lora_rank_max}")
    export = target.checkpoint_uri and f"{target.checkpoint_uri}/{ADAPTER_FOLDER}"
    return replace(
        target,
        run_id=adapter_run(target.run_id),
        digest=adapter.digest,
        manifest=adapter.manifest,
        checkpoint_uri=export,
    )


def _held_copy(held: Sequence[Fetched], manifest: WeightsManifest) -> HostCopy | None:
    """Returns another hold of a version that this worker holds: nobody else may have its bytes any more."""
    for version in held:
        if version.manifest == manifest:
            with suppress(OSError):
                return version.copy.again()
    return None


def _way(source: VersionSource, copy: HostCopy) -> str:
    if copy.is_found:
        return HERE
    is_patched = isinstance(source, FromTrainer | FromArchive) and source.is_patched
    return f"{source.name}, a patch" if is_patched else source.name


async def _take(copies: HostCopies, manifest: WeightsManifest, source: VersionSource, seconds: float) -> HostCopy:
    """Takes the copy until a deadline: a source that sends a byte now and then outlives the limits of its single reads."""
    deadline = Deadline(seconds)
    alarm = asyncio.get_running_loop().call_later(seconds, deadline.cancel)
    try:
        return await asyncio.to_thread(copies.take, manifest, source, deadline)
    except asyncio.CancelledError:
        deadline.cancel()
        raise
    finally:
        alarm.cancel()


async def _await_other_worker(copies: HostCopies, manifest: WeightsManifest) -> None:
    """Returns when another worker of the host has begun this version's copy, or has had time enough to do so."""
    ends_at = time.monotonic() + OTHERS_FIRST_S
    while time.monotonic() < ends_at and not copies.has(manifest.digest):  # noqa: ASYNC110  # another process sets no event of ours
        await asyncio.sleep(POLL_S)


def manifest_of(target: WeightsPublished) -> WeightsManifest:
    """Returns the manifest of the committed event: it alone says which bytes are this version's."""
    tensors = (TensorShape(tensor.name, tensor.dtype, tuple(tensor.shape)) for tensor in target.manifest)
    return WeightsManifest(tuple(tensors), target.digest)


def default_directory(manifest: WeightsManifest, room: CopyRoom | None = None) -> Path:
    """Returns the folder of a copy of this version, if there is one, else memory where it has room for one (containers
    often have 64 MB of it), else a folder among temporary files."""
    places = host_directories()
    for directory in filter(Path.is_dir, places):
        if HostCopies(directory).has(manifest.digest):
            return directory
    free = shutil.disk_usage(places[0].parent).free + (room.nbytes_in(places[0]) if room else 0)
    return places[0] if free > manifest.bytes_flat else places[-1]


def _sources(
    settings: RolloutSettings, target: WeightsPublished, alike: Fetched | None, carriage: Carriage | None
) -> list[VersionSource]:
    """alike: a version of the same tensors that is here."""
    sources: list[VersionSource] = []
    base = None if alike is None else Base(alike.manifest.digest, alike.copy.path)
    if target.offer_url is not None:
        files = weights_files()
        tls = files.context() if files else None
        version = target.offer_url, target.run_id, target.version
        worker_id, connect_timeout_s = settings.worker_id, settings.offer_timeout_s
        if carriage is not None and carriage.transports:
            sources.append(
                FromCarrier(carriage, *version, worker_id=worker_id, connect_timeout_s=connect_timeout_s, tls=tls)
            )
        sources.append(
            FromTrainer(*version, worker_id=worker_id, connect_timeout_s=connect_timeout_s, tls=tls, base=base)
        )
    if settings.archive_dir is not None:
        sources.append(FromArchive(settings.archive_dir / target.run_id, base))
    if target.checkpoint_uri is not None:
        sources.append(FromDirectory(target.checkpoint_uri))
    return sources
