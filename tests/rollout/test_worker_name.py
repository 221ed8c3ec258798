"""Nobody has the name of another worker."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from claw_r1.eventlog.memory import MemoryLog
from claw_r1.rollout.errors import CannotStart
from claw_r1.rollout.worker_name import CLOCKS_APART_MAX_S, claim
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import WorkerReported
from claw_r1.schemas.topics import WORKERS

REPORT = WorkerReported(
    envelope=envelope("rollout/w"),
    worker_id="w",
    url="http://elsewhere:1",
    model_id="m",
    model="policy",
    state="ready",
    report_interval_s=0.2,
)
LASTING = msgspec.structs.replace(REPORT, report_interval_s=20.0)
"""Of somebody whose silence counts late: a report may come when it can."""


@pytest.fixture
def log() -> MemoryLog:
    """An empty one."""
    log = MemoryLog()
    log.create_topics()
    return log


def test_names_of_one_host_are_numbered(log: MemoryLog, tmp_path: Path) -> None:
    """Two workers get two names; the first's is free again when it has ended, and another log has names of its own."""
    first, second = claim("", log, "log", tmp_path), claim("", log, "log", tmp_path)
    assert first.worker_id.endswith("-0")
    assert second.worker_id.endswith("-1")
    assert claim("", log, "other log", tmp_path).worker_id == first.worker_id
    first.lock.close()
    assert claim("", log, "log", tmp_path).worker_id == first.worker_id


def test_a_chosen_name_has_one_holder_on_a_host(log: MemoryLog, tmp_path: Path) -> None:
    """The second is refused in one line; kill -9 of the first frees the name."""
    script = (
        "import sys, time; from pathlib import Path; from claw_r1.eventlog.memory import MemoryLog; from claw_r1.rollout import worker_name\n"
        "log = MemoryLog(); log.create_topics(); own = worker_name.claim('w', log, 'log', Path(sys.argv[1]))\n"
        "print('held', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(CannotStart, match="--worker-id w is held by another worker on this host"):
            claim("w", log, "log", tmp_path)
        holder.kill()
    assert claim("w", log, "log", tmp_path).worker_id == "w"


@pytest.mark.parametrize("ahead_s", [0, 7, -7])
def test_a_name_is_taken_while_another_host_reports_under_it(log: MemoryLog, tmp_path: Path, ahead_s: float) -> None:
    """Reports that go on refuse a chosen name; where none was chosen, the next number is taken. Whatever the clock says."""
    producer, stop = log.producer(), threading.Event()
    number = claim("", log, "log", tmp_path).worker_id

    def report() -> None:
        for name in ("w", number):
            producer.publish_now(WORKERS, name.encode(), LASTING)

    def go_on() -> None:
        while not stop.wait(0.05):
            report()

    report()
    reporting = threading.Thread(target=go_on)
    reporting.start()
    try:
        with pytest.raises(CannotStart, match="held by the worker at http://elsewhere:1"):
            claim("w", log, "log", tmp_path, lambda: time.time() + ahead_s)
        assert claim("", log, "log", tmp_path / "another host").worker_id.endswith("-1")
    finally:
        stop.set()
        reporting.join()


@pytest.mark.parametrize(("state", "interval_s"), [("ready", 0.2), ("dead", 20.0)])
def test_a_name_is_free_when_its_reports_have_ended(
    log: MemoryLog, tmp_path: Path, state: str, interval_s: float
) -> None:
    """A worker that was killed has its own name again after three intervals, one that ended at once."""
    last = msgspec.structs.replace(REPORT, state=state, report_interval_s=interval_s)  # type: ignore[arg-type]  # of the two states above
    log.producer().publish_now(WORKERS, b"w", last)
    began = time.monotonic()
    assert claim("w", log, "log", tmp_path).worker_id == "w"
    assert (time.monotonic() - began >= 3 * interval_s) == (state == "ready")


def test_a_name_of_long_ago_is_free_at_once(log: MemoryLog, tmp_path: Path) -> None:
    """No two clocks are so far apart."""
    log.producer().publish_now(WORKERS, b"w", LASTING)
    began = time.monotonic()
    assert claim("w", log, "log", tmp_path, lambda: time.time() + 2 * CLOCKS_APART_MAX_S).worker_id == "w"
    assert time.monotonic() - began < 20
