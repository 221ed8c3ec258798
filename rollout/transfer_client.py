"""Asks a trainer for a transfer of one published version."""

from dataclasses import asdict
from urllib.parse import urlencode

import aiohttp

from rollout.errors import SourceFailed
from rollout.settings import RolloutSettings
from rollout.sync import Source
from schemas.events import WeightsPublished
from schemas.http import version_label
from weights.errors import WeightsError
from weights.rendezvous import Transfer


async def from_trainer(
    http: aiohttp.ClientSession, settings: RolloutSettings, target: WeightsPublished
) -> Source | None:
    """GET <offer_url>?worker=…&run_id=…&version=…: from the answer on, a sender waits for this worker.

    None where the event names no trainer; raises SourceFailed.
    """
    if target.offer_url is None:
        return None
    query = {"worker": settings.worker_id, "run_id": target.run_id, "version": str(target.version)}
    timeout = aiohttp.ClientTimeout(total=settings.offer_timeout_s)
    try:
        async with http.get(f"{target.offer_url}?{urlencode(query)}", timeout=timeout) as reply:
            if reply.status != 200:
                raise SourceFailed(f"transfer: {reply.status} {await reply.text()}")
            transfer = Transfer.from_json(await reply.json())
    except (aiohttp.ClientError, TimeoutError, WeightsError, ValueError) as error:
        raise SourceFailed(f"transfer: {error!r}") from error
    return source_of(transfer, target, settings.load_timeout_s)


def source_of(transfer: Transfer, target: WeightsPublished, load_timeout_s: float) -> Source:
    """The transfer as a source. Raises SourceFailed when it is of something else than what was published."""
    digest = transfer.manifest.digest
    if (transfer.run_id, transfer.version, digest) != (target.run_id, target.version, target.digest):
        label = version_label(transfer.run_id, transfer.version)
        raise SourceFailed(f"transfer: the trainer sends {label} with digest {digest[:12]}")
    timeout_s = transfer.rendezvous.timeout_s + load_timeout_s
    return Source("transfer", {"rendezvous": asdict(transfer.rendezvous)}, timeout_s)
