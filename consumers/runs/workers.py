"""The newest report of a worker beside the newest version of the run that it serves. Pure."""

from dataclasses import dataclass

from claw_r1.schemas.events import WorkerReported
from claw_r1.schemas.json_values import JsonDict

INTERVALS_MISSED_MAX = 3
"""A worker whose report is older than this many of its intervals is silent."""
GONE_AFTER_S = 3600.0


@dataclass(frozen=True, slots=True)
class KnownWorker:
    """The newest report of a worker beside the newest version of the run that it serves."""

    report: WorkerReported
    newest: int | None
    age_s: float

    @property
    def versions_behind(self) -> int | None:
        """None while it serves no version of a run, or where no worker at work made anybody look for the run's newest."""
        version = self.report.version
        return None if version is None or self.newest is None else max(self.newest - version, 0)

    @property
    def silent(self) -> bool:
        """The worker should have reported by now; one that said farewell is not silent."""
        return self.report.state != "dead" and self.age_s > self.report.report_interval_s * INTERVALS_MISSED_MAX

    @property
    def at_work(self) -> bool:
        """Neither dead nor silent. The versions of others' runs are not looked up: they may lie at the log's very beginning."""
        return self.report.state != "dead" and not self.silent

    @property
    def gone(self) -> bool:
        """The worker ended, or fell silent, so long ago that a list of workers leaves it out: its last report stays in
        the log."""
        return not self.at_work and self.age_s > GONE_AFTER_S


def age_s(report: WorkerReported, at_us: int) -> float:
    """Returns the age of a report."""
    return (at_us - report.envelope.occurred_at_us) / 1e6


def worker_row(worker: KnownWorker) -> JsonDict:
    """A worker as `claw workers list --json` and the dashboard have it."""
    report = worker.report
    return {
        "worker": report.worker_id,
        "url": report.url,
        "model": report.model_id,
        "run": report.run_id,
        "version": report.version,
        "versions_behind": worker.versions_behind,
        "state": report.state,
        "why": report.detail,
        "silent": worker.silent,
        "age_s": round(worker.age_s, 1),
        "in_flight": report.in_flight,
        "kv_usage": report.kv_usage,
        "sync_ms": report.sync_ms,
        "weights_from": report.weights_from,
        "seconds": report.seconds,
    }
