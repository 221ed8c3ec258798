"""The work on one record: a captured call becomes one score. The loop around it is `eventlog.consume`."""

from collections.abc import Collection, Sequence
from functools import partial

import structlog

from consumers.quality.panel import annotation
from consumers.quality.sample import Sample
from consumers.quality.scorers import Scorer
from consumers.quality.settings import QualitySettings
from datapool.view.request_bodies import Earlier, RequestBodies
from eventlog.consume import Output
from eventlog.records import Place, Record
from schemas.errors import UndecodableRecord
from schemas.events import CallCaptured
from schemas.keys import group_key
from schemas.topics import REWARDS

log = structlog.get_logger()


class Scoring:
    """Belongs to one thread."""

    def __init__(self, settings: QualitySettings, panel: Sequence[Scorer], *, earlier: Earlier) -> None:
        """earlier: what the log holds before a position, for requests that go on from calls of before this start."""
        self._settings = settings
        self._panel = panel
        self._earlier = earlier
        self.forget()

    def work(self, record: Record) -> list[Output]:
        """Undecodable records are the streams' to report: here they are nothing to score. Raises LogError."""
        try:
            call = record.event() if record.value is not None else None
        except UndecodableRecord as error:
            log.warning("quality_undecodable", position=str(record.position), reason=error.reason)
            return []
        if not isinstance(call, CallCaptured):
            return []
        self._bodies.add(call)
        sample = Sample(call, partial(self._bodies.body, call, record.position))
        return [(REWARDS, group_key(call.group_id), annotation(self._panel, sample, self._settings.generation))]

    def forget(self, _: Collection[Place] = ()) -> None:
        """Another process may go on with a partition, and this one with its calls later: what is remembered has gaps then."""
        self._bodies = RequestBodies(self._earlier, self._settings.requests_bytes_max)
