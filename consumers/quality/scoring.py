"""The loop: poll, score, publish, await the acknowledgements, now and then commit. See the package for its promises."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import structlog

from consumers.quality.panel import judged
from consumers.quality.requests import Earlier, Requests
from consumers.quality.sample import Sample
from consumers.quality.scorers import Scorer
from consumers.quality.settings import QualitySettings
from eventlog.protocols import Producer, Reader
from eventlog.records import Outgoing, Place, Record
from schemas.errors import UndecodableRecord
from schemas.events import CallCaptured
from schemas.keys import group_key
from schemas.topics import REWARDS

log = structlog.get_logger()

POLL_S = 0.2
Commit = Callable[[Mapping[Place, int]], None]


class Scoring:
    """Belongs to one thread."""

    def __init__(
        self,
        settings: QualitySettings,
        panel: Sequence[Scorer],
        *,
        reader: Reader,
        producer: Producer,
        commit: Commit,
        earlier: Earlier,
    ) -> None:
        """earlier: what the log holds before a position, for requests that go on from calls of before this start."""
        self._settings = settings
        self._panel = panel
        self._reader = reader
        self._producer = producer
        self._commit = commit
        self._requests = Requests(earlier, settings.requests_bytes_max)
        self._committed: dict[Place, int] = {}

    def run(self, stop: threading.Event) -> None:
        """Score until `stop`. Raises LogError: what is not committed is scored again by the next start."""
        due = time.monotonic() + self._settings.commit_interval_s
        while not stop.is_set():
            self.step()
            if time.monotonic() >= due:
                self.commit()
                due = time.monotonic() + self._settings.commit_interval_s
        self.commit()

    def step(self) -> int:
        """One poll; returns when its scores are in the log. The number of scores."""
        records = self._reader.poll(POLL_S, self._settings.records_max)
        scores = [item for record in records if (item := self._score(record)) is not None]
        for sent in [self._producer.produce(item) for item in scores]:
            sent.result()
        return len(scores)

    def commit(self) -> None:
        """Everything polled is scored and acknowledged: go on from here."""
        positions = dict(self._reader.positions())
        if positions != self._committed:
            self._commit(positions)
            self._committed = positions

    def _score(self, record: Record) -> Outgoing | None:
        """Poison is the streams' to report; here it is nothing to score."""
        try:
            call = record.event() if record.value is not None else None
        except UndecodableRecord as error:
            log.warning("quality_undecodable", position=str(record.position), reason=error.reason)
            return None
        if not isinstance(call, CallCaptured):
            return None
        self._requests.heard(call)
        sample = Sample(call, partial(self._requests.body, call, record.position))
        return Outgoing.of(REWARDS, group_key(call.group_id), judged(self._panel, sample, self._settings.generation))
