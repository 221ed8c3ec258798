"""Asks a trainer for a transfer of one published version."""

from urllib.parse import urlencode

import aiohttp

from rollout.errors import SourceFailed
from rollout.settings import RolloutSettings
from rollout.sync import OpenSource, Source, from_offer
from schemas.events import WeightsPublished
from weights.errors import WeightsError
from weights.rendezvous import Offer


def from_trainer(http: aiohttp.ClientSession, settings: RolloutSettings) -> OpenSource:
    """GET <offer_url>?worker=…&run_id=…&version=…: from the answer on, a sender waits for this worker."""
    timeout = aiohttp.ClientTimeout(total=settings.offer_timeout_s)

    async def open_source(target: WeightsPublished) -> Source | None:
        if target.offer_url is None:
            return None
        query = {"worker": settings.worker_id, "run_id": target.run_id, "version": str(target.version)}
        try:
            async with http.get(f"{target.offer_url}?{urlencode(query)}", timeout=timeout) as reply:
                if reply.status != 200:
                    raise SourceFailed(f"offer: {reply.status} {await reply.text()}")
                offer = Offer.from_json(await reply.json())
        except (aiohttp.ClientError, TimeoutError, WeightsError, ValueError) as error:
            raise SourceFailed(f"offer: {error!r}") from error
        return from_offer(offer, target, settings.load_timeout_s)

    return open_source
