"""Trees through the real engine."""

from dataclasses import replace

import pytest
import torch

from claw_r1.trainer.algorithms.losses import bound
from claw_r1.trainer.learn.engine import EngineSettings, TrainingEngine
from claw_r1.trainer.learn.objective import Objective
from tests.soak import in_soak
from tests.trainer.learn.forests import forest

pytestmark = pytest.mark.process

OBJECTIVE = Objective(loss=bound("ppo_clip", clip_low=0.2, clip_high=0.28))
SETTINGS = EngineSettings(learning_rate=1e-3)


def train(model_dir, **changes):
    """Losses, norms and metrics of four steps, and the weights after them."""
    subject = TrainingEngine(model_dir, replace(SETTINGS, **changes))
    steps = [subject.train(OBJECTIVE.scaled(forest(step), 12), OBJECTIVE, version=1, seed=step) for step in range(4)]
    return steps, {name: tensor.clone() for name, tensor in subject.named_tensors()}


@pytest.mark.parametrize(("stage", "tokens_max"), [(0, 10_000), (3, 60), in_soak(0, 60), in_soak(3, 10_000)])
def test_the_engine_learns_the_same_from_trees(model_dir, stage, tokens_max):
    """Four steps at ZeRO 0 and 3, whole and cut: metrics and weights are those of rows, for fewer tokens."""
    rows, expected = train(model_dir, layout="rows")
    trees, weights = train(model_dir, layout="tree", zero_stage=stage, micro_batch_tokens_max=tokens_max)
    for row, tree in zip(rows, trees, strict=True):
        assert tree.totals.means() == pytest.approx(row.totals.means(), rel=1e-4, abs=1e-5)
        assert tree.grad_norm == pytest.approx(row.grad_norm, rel=1e-4)
        assert tree.tokens_computed < row.tokens_computed
    for name, tensor in weights.items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-4, atol=2e-5)


def test_a_batch_trains_to_the_same_bytes_again(model_dir):
    """A replay of a plan repeats what it did."""
    weights = [train(model_dir, layout="auto")[1] for _ in range(2)]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())
