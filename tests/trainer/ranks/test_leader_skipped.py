"""A number that is not finite on one rank skips the step on all."""

import math

import pytest
import torch

from tests.trainer import incarnation
from tests.trainer.ranks.test_leader import batch

pytestmark = [pytest.mark.process, pytest.mark.slow]


def train(learner, path):
    """A good batch, a bad one, and a good one."""
    learner.train(batch(0))
    before = {name: tensor.clone() for name, tensor in learner.named_tensors()}
    poisoned = batch(1)
    poisoned.examples[0].advantages[:] = math.nan
    skipped = learner.train(poisoned)["step_skipped"]
    after = {name: tensor.clone() for name, tensor in learner.named_tensors()}
    torch.save((before, after, skipped, learner.train(batch(2))), path)


@pytest.mark.parametrize("stage", [0, 2])
def test_one_ranks_number_skips_the_step_of_all(walk, tmp_path, model_dir, stage):
    """No rank moves, and the next step is finite again on each."""
    settings = incarnation.settings(
        tmp_path / "out", model_dir, zero_stage=stage, micro_batch_tokens_max=24, device="cpu", ranks=2
    )
    walk(train, settings, tmp_path / "seen.pt")
    before, after, skipped, metrics = torch.load(tmp_path / "seen.pt")
    assert skipped == 1
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert metrics["step_skipped"] == 0
    assert math.isfinite(metrics["loss"]) and math.isfinite(metrics["grad_norm"])  # noqa: PT018  # one thought
