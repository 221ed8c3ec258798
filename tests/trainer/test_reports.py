"""What a person sees of a run."""

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.trainer.plan.test_history import trained
from trainer.reports import Reports


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
