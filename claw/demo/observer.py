"""The demo's knowledge of its own run, read from the topics like any other consumer.

Input: every topic of the data path, from the offsets at the start of the run. Output: counts. A replay from the same
offsets gives the same counts; nothing is written.
"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from claw_r1.claw.workers.reports import takes_calls
from claw_r1.eventlog.kafka.reader import read_topics
from claw_r1.eventlog.records import Place, Record, readable
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.errors import UndecodableRecord
from claw_r1.schemas.events import (
    BatchTrained,
    CallCaptured,
    Event,
    GroupRecord,
    RunEnded,
    RunStarted,
    TrajectoryRecord,
    WeightsPublished,
    WorkerReported,
)
from claw_r1.schemas.http import Channel
from claw_r1.schemas.topics import BATCHES, CALLS, DEAD_LETTERS, GROUPS, TRAJECTORIES, WEIGHTS, WORKERS, Catalogue

WATCHED = (CALLS, GROUPS, BATCHES, WEIGHTS, WORKERS, DEAD_LETTERS)
CALL_TYPE = ("ce_type", b"claw.CallCaptured")


@dataclass(slots=True)
class DemoProgress:
    """Counts of one run, updated record by record."""

    run_id: str
    model_id: str | None = None
    """The model whose workers count; None: all."""
    calls: int = 0
    ready: set[str] = field(default_factory=set)
    opened: set[str] = field(default_factory=set)
    batches: list[BatchTrained] = field(default_factory=list)
    version: int | None = None
    reports: list[WorkerReported] = field(default_factory=list)
    workers: dict[str, WorkerReported] = field(default_factory=dict)
    dead_letters: int = 0
    ended: RunEnded | None = None

    def observe(self, record: Record, catalogue: Catalogue) -> None:
        """Takes one record in. Calls are counted by their header, since there are many and only their number is shown."""
        if record.topic == catalogue.name(DEAD_LETTERS):
            self.dead_letters += 1
        elif record.topic == catalogue.name(CALLS):
            self.calls += CALL_TYPE in record.headers
        elif record.value is not None:
            self.take(record.event())

    def take(self, event: Event) -> None:
        match event:
            case GroupRecord(channel=Channel.TRAIN) if event.run_id in (None, self.run_id):  # people name no run
                self.opened.add(event.group_id)
                (self.ready.add if event.ready else self.ready.discard)(event.group_id)
            case BatchTrained(run_id=self.run_id):
                self.batches.append(event)
            case RunStarted(run_id=self.run_id):
                self.ended = None
            case RunEnded(run_id=self.run_id):
                self.ended = event
            case WeightsPublished(run_id=self.run_id):
                self.version = max(self.version or 0, event.version)  # exports are announced later
            case WorkerReported() if event.run_id in (None, self.run_id) and self.model_id in (None, event.model_id):
                self.workers[event.worker_id] = event
                self.reports.append(event)
            case _:
                pass

    def workers_with(self, version: int | None) -> int:
        """Returns how many are ready with this version of the run."""
        return sum(self._has(worker, version) for worker in self.workers.values())

    def is_settled(self) -> bool:
        """Returns whether every worker that takes calls has the last version, and one is there."""
        serving = [worker for worker in self.workers.values() if takes_calls(worker, now_us())]
        return bool(serving) and all(self._has(worker, self.version) for worker in serving)

    def _has(self, worker: WorkerReported, version: int | None) -> bool:
        return worker.state == "ready" and (worker.run_id, worker.version) == (self.run_id, version)


class Observer:
    """Progress that other threads may wait on."""

    def __init__(self, run_id: str, catalogue: Catalogue, model_id: str | None = None) -> None:
        self.progress = DemoProgress(run_id, model_id)
        self._catalogue = catalogue
        self._changed = threading.Condition()

    def on_record(self, record: Record) -> None:
        """Hands one record to the progress. A record that cannot be read counts nowhere: the streams report it."""
        with self._changed:
            try:
                self.progress.observe(record, self._catalogue)
            except UndecodableRecord:
                return
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[DemoProgress], bool], timeout_s: float) -> bool:
        """Waits for the condition, and returns whether it came true within the timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: condition(self.progress), timeout_s)


def trajectories(settings: LogSettings, offsets: Mapping[Place, int]) -> list[TrajectoryRecord]:
    """Latest record of each trajectory that changed since the offsets."""
    latest = {record.key: record for record in read_topics(settings, [TRAJECTORIES], offsets)}
    return [event for event in readable(latest.values()) if isinstance(event, TrajectoryRecord)]


def calls_captured(settings: LogSettings, offsets: Mapping[Place, int]) -> dict[str, int]:
    """Number of distinct calls captured since the offsets, by worker, a judge's own aside: the agents must have got as many replies."""
    events = readable(read_topics(settings, [CALLS], offsets))
    calls = {
        event.call_id: event.worker_id or event.upstream
        for event in events
        if isinstance(event, CallCaptured) and event.channel != Channel.JUDGE
    }
    return dict(sorted(Counter(calls.values()).items()))
