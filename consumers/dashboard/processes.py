"""All processes as seen in the log, with the lag of each reader over the last quarter of an hour.

No process is called: readers are known by their committed offsets, workers by their reports, trainers by their batches,
gateways by their records. Lag from before the dashboard's start is unknown and not drawn.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from claw_r1.consumers.dashboard.page_log import PageLog
from claw_r1.consumers.dashboard.source import RunsState
from claw_r1.consumers.dashboard.workers import worker_rows
from claw_r1.consumers.runs.summary import row
from claw_r1.eventlog.errors import LogError
from claw_r1.eventlog.kafka.admin import begin_offsets, end_offsets
from claw_r1.eventlog.kafka.consumer_groups import ConsumerGroup, consumer_groups
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.records import Place
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.json_values import JsonDict
from claw_r1.schemas.topics import CALLS

SAMPLE_S, KEPT_S = 10.0, 900.0
RATE_US = 120_000_000
"""Rates, and the time to catch up, are of the last so many microseconds."""
RUNS_SHOWN = 3
"""The fewest runs that are shown, where there are as many: first those at work, which all are, then the newest."""
AT_WORK = ("starting", "running")
GATEWAYS = "gateways"


class LagSample(NamedTuple):
    """Records that a process has done at a moment, and those that are left; of a writer none are."""

    at_us: int
    done: int
    left: int


class ProcessWatch:
    """A thread that asks the log again and again. Safe from any thread."""

    def __init__(self, log: PageLog, clock_us: Callable[[], int]) -> None:
        self._log, self._clock_us = log, clock_us
        self._samples: dict[str, deque[LagSample]] = {}
        self._lock, self._stopping = threading.Lock(), threading.Event()

    def start(self) -> None:
        """Begins to ask; a log in memory has no groups that could be asked for."""
        if isinstance(self._log, KafkaLog):
            threading.Thread(target=self._run, name="dashboard-processes", daemon=True).start()

    def stop(self) -> None:
        """Asks no more."""
        self._stopping.set()

    def sample(self, groups: Mapping[str, tuple[int, int]]) -> None:
        """Takes in (done, left) of each process now."""
        now_us = self._clock_us()
        with self._lock:
            for name, numbers in groups.items():
                samples = self._samples.setdefault(name, deque(maxlen=int(KEPT_S / SAMPLE_S)))
                samples.append(LagSample(now_us, *numbers))

    def tell(self, name: str) -> JsonDict:
        """Rate, curve of the lag, and seconds until it is 0; null where it grows or is unknown."""
        with self._lock:
            samples = list(self._samples.get(name, ()))
        if not samples:
            return {"rate_per_s": None, "curve": [], "caught_up_s": None}
        last = samples[-1]
        first = next(each for each in samples if each.at_us >= last.at_us - RATE_US)
        seconds = (last.at_us - first.at_us) / 1e6
        gain = (first.left - last.left) / seconds if seconds else 0.0
        return {
            "rate_per_s": (last.done - first.done) / seconds if seconds else None,
            "curve": [[each.at_us, each.left] for each in samples],
            "caught_up_s": 0.0 if not last.left else last.left / gain if gain > 0 else None,
        }

    def _run(self) -> None:
        while not self._stopping.is_set():
            with suppress(LogError):  # the watch on the log says that it is away
                rows, written = reader_rows(self._log.settings)
                done = {each["name"]: (sum(place["done"] for place in each["places"]), each["lag"]) for each in rows}
                self.sample(done | {GATEWAYS: (written, 0)})
            self._stopping.wait(SAMPLE_S)


def reader_rows(settings: LogSettings) -> tuple[list[JsonDict], int]:
    """The consumer groups with every partition that they read, and how many records were ever written to claw.calls. Raises
    LogError."""
    catalogue = list(settings.catalogue())
    begins, ends = begin_offsets(settings, catalogue), end_offsets(settings, catalogue)
    written = sum(end for (topic, _), end in ends.items() if topic == settings.catalogue().name(CALLS))
    return [_reader(settings, group, begins, ends) for group in consumer_groups(settings)], written


def _reader(
    settings: LogSettings, group: ConsumerGroup, begins: Mapping[Place, int], ends: Mapping[Place, int]
) -> JsonDict:
    places = list(_places(group, begins, ends))
    kind = "streams" if group.name == settings.catalogue().streams_group else "reader"
    if group.name.startswith(f"{settings.prefix}.rewards."):
        kind = "rewards"
    return {
        "name": group.name,
        "kind": kind,
        "state": f"{group.members} at work" if group.members else "nobody is at work",
        "alarm": not group.members and any(place["behind"] for place in places),
        "version": f"generation {settings.generation}" if kind == "streams" else None,
        "lag": sum(place["behind"] for place in places),
        "places": places,
    }


def _places(group: ConsumerGroup, begins: Mapping[Place, int], ends: Mapping[Place, int]) -> Iterator[JsonDict]:
    """Every partition of the topics that the group reads; one in which it never committed it has yet to read from its beginning."""
    topics = {topic for topic, _ in group.offsets}
    for place, end in sorted(ends.items()):
        if place[0] in topics:
            offset = group.offsets.get(place)
            reached = max(begins[place], offset or 0)
            where = {"topic": place[0], "partition": place[1], "offset": offset, "end": end}
            yield {**where, "done": min(end, reached), "behind": max(0, end - reached)}


def other_rows(state: RunsState, now_us: int) -> Iterator[JsonDict]:
    """Trainers and workers, as their own events tell."""
    at_work = {run.run_id for run in state.runs.values() if run.state(now_us) in AT_WORK}
    runs = sorted(state.runs.values(), key=lambda run: (run.run_id not in at_work, -run.seen_us))
    for run in (row(each, now_us) for each in runs[: max(RUNS_SHOWN, len(at_work))]):
        age = None if run["age_s"] is None else f"last batch {run['age_s']:.0f} s ago"
        yield {"name": run["run"], "kind": "trainer", "state": run["state"], "version": run["version"], "why": age}
    for worker in worker_rows(state, now_us):
        yield {
            "name": worker["worker"],
            "kind": "worker",
            "state": f"silent for {worker['age_s']:.0f} s" if worker["silent"] else worker["state"],
            "alarm": worker["silent"] or worker["state"] == "behind",
            "version": worker["version"],
            "lag": worker["versions_behind"],
            "why": worker["why"],
            "worker": worker,
        }
