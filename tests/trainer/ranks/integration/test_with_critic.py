"""Two ranks with a critic and a reference are one rank with them."""

import pytest
import torch

from claw_r1.datapool.batch.spec import BatchSpec
from tests.trainer import incarnation
from tests.trainer.ranks.crew import crew, run
from tests.trainer.ranks.test_leader import batch

pytestmark = [pytest.mark.process, pytest.mark.slow]
STEPS = 3
PPO = {
    "spec": BatchSpec(algorithm="gae", groups_per_batch=2, group_size=4, staleness_max=100),
    "reference": {"coefficient": 0.1, "place": "reward"},
    "learning_rate": 1e-3,
    "micro_batch_tokens_max": 24,
    "device": "cpu",
}


def rewarded(number):
    """Every other trajectory earns something at its end."""
    made = batch(number)
    for index, each in enumerate(made.examples):
        each.rewards[-1] = index % 2
    return made


def train(learner, path):
    metrics = [learner.train(rewarded(number)) for number in range(STEPS)]
    weights = {name: tensor.clone() for name, tensor in learner.named_tensors()}
    torch.save((metrics, weights, learner.hashed_critic()), path)


@pytest.fixture(scope="module")
def alone(tmp_path_factory, model_dir):
    folder = tmp_path_factory.mktemp("alone")
    settings = incarnation.settings(folder / "out", model_dir, **PPO)
    assert run(crew(folder, train, settings, folder / "done.pt")) == [0]
    return torch.load(folder / "done.pt")


def test_two_ranks_with_a_critic_are_one(walk, tmp_path, model_dir, alone):
    """Values, returns, losses and weights agree after three steps of both models, at stage 3."""
    settings = incarnation.settings(tmp_path / "out", model_dir, zero_stage=3, ranks=2, **PPO)
    walk(train, settings, tmp_path / "done.pt")
    (expected_metrics, expected, _), (metrics, weights, digest) = alone, torch.load(tmp_path / "done.pt")
    for one, other in zip(expected_metrics, metrics, strict=True):
        packing = {"micro_batches": 0, "tokens_computed": 0}
        assert {**other, **packing} == pytest.approx({**one, **packing}, abs=1e-4, rel=1e-4)
    assert metrics[-1]["value_mean"] != 0
    assert len(digest) == 64
    for name, tensor in expected.items():
        torch.testing.assert_close(weights[name], tensor, rtol=0, atol=1e-5)
