"""What a person sees of a run."""

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from claw_r1.trainer.storage.reports import Reports
from tests.small_disk import run_on_small_disk
from tests.trainer.journal.test_history import trained


def test_a_resumed_run_keeps_the_points_of_all_its_batches(tmp_path):
    """Also of those behind a number that was given up: there are fewer batches than their numbers say."""
    before = Reports(tmp_path, [])
    for sequence in (0, 2, 3):
        before.write(trained(sequence))
    before.close()
    after = Reports(tmp_path, [trained(sequence) for sequence in (0, 2, 3)])
    after.write(trained(4))
    after.close()
    points = EventAccumulator(str(tmp_path / "tensorboard")).Reload().Scalars("train/reward")
    assert [point.step for point in points] == [0, 2, 3, 4]
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 4


ON_A_DISK = """
import json, sys
from pathlib import Path
from msgspec import structs
from structlog.testing import capture_logs
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from claw_r1.trainer.storage.reports import Reports
from tests.trainer.journal.test_history import trained

folder = Path(sys.argv[1])
filling = folder / "filling"
metrics = {f"metric_{number}": 1.0 for number in range(40)}

def fill():
    try:
        with filling.open("ab", buffering=0) as file:
            while True:
                file.write(bytes(4096))
    except OSError:
        pass

def lost(what):
    with capture_logs() as lines:
        what()
    return len({line["name"] for line in lines if line["event"] == "not_written"})

def write(*sequences):
    for sequence in sequences:
        reports.write(structs.replace(trained(sequence), metrics=metrics))
"""
A_RUN = """
reports = Reports(folder, [])
print("free", lost(lambda: write(0)))
fill()
print("full", lost(lambda: write(*range(1, 9))))
filling.unlink()
print("free", lost(lambda: write(9)))
fill()
print("full", lost(lambda: write(10, 11)))
print("closed", lost(reports.close), lost(reports.close))
batches = [json.loads(line)["batch"] for line in (folder / "metrics.jsonl").read_text().split("\\n")[:-1]]
print(batches[0], 9 in batches)
points = EventAccumulator(str(folder / "tensorboard")).Reload()
(steps,) = {tuple(point.step for point in points.Scalars(f"train/{name}")) for name in metrics}
print(0 in steps, 8 in steps, 9 in steps)
"""
A_START = """
reports = Reports(folder, [])
lost(lambda: write(0))
reports.close()
fill()
with capture_logs() as lines:
    reports = Reports(folder, [trained(sequence) for sequence in range(200)])
print(*(line["event"] for line in lines))
print(sorted(path.name for path in folder.iterdir()))
lost(lambda: write(200))
filling.unlink()
print("free", lost(lambda: write(201)))
print(201 in [json.loads(line)["batch"] for line in (folder / "metrics.jsonl").read_text().splitlines()])
"""


def test_a_full_disk_costs_points_and_not_the_run(tmp_path):
    """What is not written is said. Once there is room again, all is written as before, to files that never have a part of a
    batch; and a disk that is full at the end of the run does not keep it from ending."""
    *losses, lines, points = run_on_small_disk(ON_A_DISK + A_RUN, tmp_path, "300k")
    assert losses == ["free 0", "full 2", "free 0", "full 2", "closed 1 0"]
    assert lines == "0 True"
    assert points == "True False True"


def test_a_trainer_starts_on_a_full_disk(tmp_path):
    """The lines of earlier batches stay as they are, which is said; nothing is left beside them, and new ones are written as soon
    as there is room."""
    said, names, free, is_there = run_on_small_disk(ON_A_DISK + A_START, tmp_path, "300k")
    assert said == "not_written"
    assert names == "['filling', 'metrics.jsonl', 'tensorboard']"
    assert (free, is_there) == ("free 0", "True")
