"""Live workers that do not have the weights yet that only this process serves. Pure, apart
from the loop that waits."""

import time
from collections.abc import Callable, Iterable
from threading import Event as Flag

from claw_r1.eventlog.records import Record
from claw_r1.schemas.errors import UndecodableRecord
from claw_r1.schemas.events import WorkerReported

REPORTS_MISSED_MAX = 3
"""A worker that missed this many reports is not waited for."""


def behind(reports: Iterable[Record], model_id: str, run_id: str, version: int, now_ms: int) -> list[str]:
    """worker_ids of live workers of this model that do not report this version (or a later one) yet, sorted."""
    return sorted(
        report.worker_id
        for record in reports
        if (report := _report(record)) is not None
        and report.model_id == model_id
        and report.state not in ("dead", "draining")
        and now_ms - record.timestamp_ms < report.report_interval_s * 1000 * REPORTS_MISSED_MAX
        and not (report.run_id == run_id and report.version is not None and report.version >= version)
    )


def _report(record: Record) -> WorkerReported | None:
    """The report in a record; None where there is none, since an unreadable record is no reason to wait for a worker."""
    try:
        event = record.event()
    except UndecodableRecord:
        return None
    return event if isinstance(event, WorkerReported) else None


def wait_for_all(still_behind: Callable[[], list[str]], timeout_s: float, stop: Flag, poll_s: float = 0.1) -> list[str]:
    """Wait until no worker is behind, `stop` is set, or the time is over. Returns the ids of those that are behind then."""
    deadline = time.monotonic() + timeout_s
    lagging = still_behind()
    while lagging and time.monotonic() < deadline and not stop.wait(poll_s):
        lagging = still_behind()
    return lagging
