"""What a person sees of a run."""

import errno
import time

from structlog.testing import capture_logs
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from claw_r1.trainer.storage.reports import Reports
from tests.patience import until
from tests.trainer.journal.test_history import trained


def test_a_resumed_run_keeps_the_points_of_all_its_batches(tmp_path):
    """Also of those behind a number that was given up: there are fewer batches than their numbers say."""
    before = Reports(tmp_path, [])
    for sequence in (0, 2, 3):
        before.write(trained(sequence))
    before.close()
    began_s = int(time.time())
    until(lambda: int(time.time()) > began_s)  # files of one process and second are in order of the text of a number
    after = Reports(tmp_path, [trained(sequence) for sequence in (0, 2, 3)])
    after.write(trained(4))
    after.close()
    points = EventAccumulator(str(tmp_path / "tensorboard")).Reload().Scalars("train/reward")
    assert [point.step for point in points] == [0, 2, 3, 4]
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 4


def test_a_full_disk_costs_points_and_not_the_run(tmp_path, monkeypatch):
    """What is not written is said; the next start writes it from the log."""
    reports = Reports(tmp_path, [])
    monkeypatch.setattr("claw_r1.trainer.storage.reports.line", lambda _: _no_space())
    with capture_logs() as logs:
        reports.write(trained(0))
    assert "not_written" in [entry["event"] for entry in logs]
    reports.close()


def _no_space():
    raise OSError(errno.ENOSPC, "No space left on device")
