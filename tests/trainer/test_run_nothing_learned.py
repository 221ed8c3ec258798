"""A run whose gradients are no numbers: it says so, keeps its weights, and ends before it burns its pool. One whose rewards are
all equal says so, too, and goes on."""

import math
from dataclasses import fields

import pytest
from structlog.testing import capture_logs

from claw_r1.schemas.events import BatchTrained, RunEnded, WeightsPublished
from claw_r1.trainer.dependencies import TrainerDependencies
from claw_r1.trainer.errors import NothingLearned
from claw_r1.trainer.run import TrainingRun
from tests.trainer.incarnation import settings
from tests.trainer.pooled import group
from tests.trainer.runs_in_memory import events, world_of

pytestmark = pytest.mark.process

FLAT_RUN = (range(7), [-0.3, -0.3]), (range(7, 9), [0.0, 1.0])
"""Numbers of groups and the rewards in each."""


class Poisoned:
    """A learner that gets an infinite advantage in the batches of these sequence numbers."""

    def __init__(self, learner, is_bad):
        self._learner, self._is_bad = learner, is_bad

    def __getattr__(self, name):
        return getattr(self._learner, name)

    def train(self, batch, before_micro_batch):
        if self._is_bad():
            batch.examples[0].advantages[:] = math.inf
        return self._learner.train(batch, before_micro_batch)


def life(chosen, log, bad):
    """One incarnation on `log` (None: a new one), in which the batches that `bad` names are poisoned."""
    history = [event for n in range(8) for event in group(f"g{n}", [0.0, 1.0], at_us=n)]
    log, world = world_of(chosen, history, log=log)
    poisoned = Poisoned(world.learner, lambda: len(events(log, BatchTrained)) in bad)
    parts = {field.name: getattr(world, field.name) for field in fields(TrainerDependencies)}
    return log, TrainingRun(chosen, TrainerDependencies(**parts | {"learner": poisoned}))


def chosen(tmp_path, model_dir, **changes):
    spec = {"groups_per_batch": 1, "group_size": 2, "staleness_max": 99}
    return settings(tmp_path, model_dir, spec=spec, **changes)


def test_a_skipped_batch_is_published_as_a_version_of_equal_bytes(tmp_path, model_dir):
    """It counts, says what was not finite, and the run goes on."""
    log, run = life(chosen(tmp_path, model_dir, batches_max=4), None, {1, 2})
    assert run.run() == "finished"
    trained = events(log, BatchTrained)
    assert [e.metrics["step_skipped"] for e in trained] == [0, 1, 1, 0]
    assert all(trained[1].metrics[f"nonfinite_{name}"] == 1 for name in ("loss", "grad_norm"))
    assert trained[1].metrics["reward"] == 0.5
    digests = {e.version: e.digest for e in events(log, WeightsPublished)}
    assert digests[1] == digests[2] == digests[3]
    assert len({digests[0], digests[1], digests[4]}) == 3


def test_three_in_a_row_end_the_run_also_across_a_resume(tmp_path, model_dir):
    """Resumed, the run tries one batch more: another bad one ends it again, a good one lets it go on."""
    log, run = life(chosen(tmp_path, model_dir, batches_max=9), None, {1, 2, 3, 4})
    with pytest.raises(NothingLearned, match=r"batches 1, 2, 3: .*--replay-batch 3"):
        run.run()
    log, run = life(chosen(tmp_path, model_dir, batches_max=9), log, {4})
    with pytest.raises(NothingLearned, match="batches 1, 2, 3, 4: "):
        run.run()
    log, run = life(chosen(tmp_path, model_dir, batches_max=6), log, set())
    assert run.run() == "finished"
    assert [e.sequence for e in events(log, BatchTrained)] == [0, 1, 2, 3, 4, 5]
    (ended,) = events(log, RunEnded)
    assert ended.version == 6


def test_a_run_of_equal_rewards_says_that_nothing_can_be_learnt_also_across_a_resume(tmp_path, model_dir):
    """Three batches before a restart and two behind it are five in a row; with the first that differ the warning goes."""
    flat, other = (
        [event for n in numbers for event in group(f"g{n}", rewards, at_us=n)] for numbers, rewards in FLAT_RUN
    )
    warnings = tmp_path / "warnings.json"

    def run_on(history, log, batches_max):
        life = chosen(tmp_path, model_dir, batches_max=batches_max, warnings_file=warnings)
        log, world = world_of(life, history, log=log)
        with capture_logs() as lines:
            assert TrainingRun(life, world).run() == "finished"
        return log, [line["event"] for line in lines].count("nothing_to_learn"), warnings.exists()

    log, *said = run_on(flat, None, 3)
    assert said == [0, False]
    log, *said = run_on(flat, log, 7)
    assert said == [1, True]
    *_, last = events(log, BatchTrained)
    assert (last.metrics["advantage_share"], last.metrics["zero_variance_share"]) == (0.0, 1.0)
    assert run_on(flat + other, log, 9)[1:] == (1, False)
