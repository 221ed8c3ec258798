"""Who is waited for at the end."""

import threading

from claw_r1.eventlog.records import Record
from claw_r1.schemas.codec import encode
from claw_r1.schemas.events import WorkerReported
from claw_r1.trainer.versions.live_workers import behind, wait_for_all
from tests import facts


def report(worker="w", *, at_ms=10_000, **changes):
    fields = {"model_id": "m", "run_id": "run", "version": 3, "state": "ready", **changes}
    event = WorkerReported(
        envelope=facts.envelope(), worker_id=worker, url="u", model="tiny", report_interval_s=1.0, **fields
    )
    return Record("claw.rollout.workers", 0, 0, at_ms, worker.encode(), encode(event))


def left(*reports):
    return behind(reports, "m", "run", 3, now_ms=10_500)


def test_only_live_workers_of_the_model_that_lack_the_version_are_behind():
    """Up to date, gone, silent, or serving another model: not waited for."""
    assert left(report()) == []
    assert left(report(version=4)) == []
    assert left(report(version=2), report("v", version=None)) == ["v", "w"]
    assert left(report(run_id="other", version=9)) == ["w"]
    assert left(report(version=2, state="dead"), report("v", version=2, model_id="x")) == []
    assert left(report(version=2, at_ms=7_000)) == []


def test_a_record_that_cannot_be_read_is_nobody():
    """A broken or removed report keeps no trainer waiting, and breaks none."""
    assert left(Record("t", 0, 0, 10_000, b"w", b"junk"), Record("t", 0, 0, 10_000, b"w", None)) == []


def test_waiting_ends_when_all_are_there_when_time_is_up_or_when_asked():
    """Never longer than the deadline."""
    answers = iter([["w"], ["w"], []])
    assert wait_for_all(lambda: next(answers), 5, threading.Event(), poll_s=0.001) == []
    assert wait_for_all(lambda: ["w"], 0.01, threading.Event(), poll_s=0.001) == ["w"]
    stop = threading.Event()
    stop.set()
    assert wait_for_all(lambda: ["w"], 60, stop) == ["w"]
