"""The newest reports of workers, and the distance of each from what was published.

Input: claw.rollout.workers and claw.weights. Order: none between the two, so a worker may seem a version behind for a moment.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

from claw_r1.consumers.runs.workers import KnownWorker, age_s
from claw_r1.eventlog.kafka.admin import begin_offsets, end_offsets
from claw_r1.eventlog.kafka.reader import read_topics, stream_ranges
from claw_r1.eventlog.records import Place, readable
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.codec import event_name, fields_before_lists
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.errors import UndecodableRecord
from claw_r1.schemas.events import WeightsPublished, WorkerReported
from claw_r1.schemas.topics import TAKES_TRAFFIC, WEIGHTS, WORKERS

NEWEST_FIRST = 64
"""Records per partition of claw.weights that are looked at before older ones are."""
ModelRun = tuple[str, str]
"""model_id, run_id"""


def takes_calls(report: WorkerReported, at_us: int) -> bool:
    """Returns whether a gateway would send calls to the worker."""
    return report.state in TAKES_TRAFFIC and not KnownWorker(report, None, age_s(report, at_us)).silent


def known_workers(settings: LogSettings) -> list[KnownWorker]:
    """Every worker that the log knows, by its id. Raises BrokerUnreachable, TopicMissing."""
    latest = newest_reports(settings)
    workers = [KnownWorker(each, None, age_s(each, now_us())) for each in latest]
    versions = newest_versions(settings, {run for each in workers if (run := _run_of(each.report)) and each.at_work})
    return [replace(each, newest=versions.get(_run_of(each.report) or ("", ""))) for each in workers]


def _run_of(report: WorkerReported) -> ModelRun | None:
    return (report.model_id, report.run_id) if report.run_id else None


def newest_reports(settings: LogSettings) -> list[WorkerReported]:
    """Returns one report per worker, by its id."""
    records = {record.key: record for record in read_topics(settings, [WORKERS])}
    reports = [event for event in readable(records.values()) if isinstance(event, WorkerReported)]
    return sorted(reports, key=lambda report: report.worker_id)


def newest_versions(settings: LogSettings, runs: Iterable[ModelRun]) -> dict[ModelRun, int]:
    """The highest version of each run, read from the end of the topic, no record twice: its events are large, and most are old."""
    missing, newest = set(runs), dict[ModelRun, int]()
    begins, ends = begin_offsets(settings, [WEIGHTS]), end_offsets(settings, [WEIGHTS])
    upto, count = ends, NEWEST_FIRST
    while missing and any(upto[place] > begins[place] for place in begins):
        start = {place: max(begins[place], end - count) for place, end in upto.items()}
        for run, version in _published(settings, {place: (start[place], upto[place]) for place in start}):
            newest[run] = max(newest.get(run, 0), version)
        missing -= newest.keys()
        upto, count = start, count * 8
    return newest


def _published(settings: LogSettings, ranges: dict[Place, tuple[int, int]]) -> Iterator[tuple[ModelRun, int]]:
    """Without their manifests."""
    for record in stream_ranges(settings, ranges):
        with suppress(UndecodableRecord):
            if event_name(record.value) == WeightsPublished.__name__:
                head = fields_before_lists(record.value)
                yield (head["model_id"], head["run_id"]), head["version"]
