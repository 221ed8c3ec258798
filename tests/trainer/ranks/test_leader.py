"""Two ranks are one rank."""

import random

import pytest
import torch

from claw_r1.trainer.learn.examples import LearnerBatch
from tests.soak import EVERY_ZERO_STAGE
from tests.trainer import incarnation
from tests.trainer.examples import example
from tests.trainer.ranks.crew import crew, run
from tests.trainer.tiny import VOCABULARY

pytestmark = [pytest.mark.process, pytest.mark.slow]
STEPS = 5
PROBE = (3, 1, 4, 1, 5, 9, 2, 6)
ADAPTERS = {"lora": {"rank": 4, "alpha": 8}, "reference": {"coefficient": 0.1}, "learning_rate": 1e-3}


def batch(number):
    """Seven trajectories of unequal length: no deal is even."""
    dice = random.Random(number)
    examples = [
        example(
            [dice.randrange(VOCABULARY) for _ in range(dice.randint(2, 6))],
            [dice.randrange(VOCABULARY) for _ in range(dice.randint(1, 9))],
            advantage=dice.choice([-1.0, 0.0, 1.0]),
            index=index,
        )
        for index in range(7)
    ]
    return LearnerBatch(examples, version=0, seed=number, group_sizes=(1,) * 7, sequence=number)


def train(learner, path):
    metrics = []
    for number in range(STEPS):
        metrics.append(learner.train(batch(number)))
        metrics[-1] |= {f"probe_{index}": float(value) for index, value in enumerate(learner.logprobs(PROBE))}
    weights = {name: tensor.clone() for name, tensor in learner.named_tensors()} | learner.adapter_tensors()
    torch.save((metrics, weights), path)


def chosen(folder, model_dir, ranks, stage, **changes):
    how = {"micro_batch_tokens_max": 24, "device": "cpu", **changes}
    return incarnation.settings(folder / "out", model_dir, zero_stage=stage, ranks=ranks, **how)


def trained_alone(folder, model_dir, **changes):
    assert run(crew(folder, train, chosen(folder, model_dir, 1, 0, **changes), folder / "done.pt")) == [0]
    return torch.load(folder / "done.pt")


@pytest.fixture(scope="module")
def alone(tmp_path_factory, model_dir):
    return trained_alone(tmp_path_factory.mktemp("alone"), model_dir)


@pytest.fixture(scope="module")
def alone_with_adapters(tmp_path_factory, model_dir):
    return trained_alone(tmp_path_factory.mktemp("alone"), model_dir, **ADAPTERS)


@EVERY_ZERO_STAGE
def test_two_ranks_are_one(walk, tmp_path, model_dir, alone, stage):
    """Metrics, log-probabilities and weights of five steps agree to 1e-5, at every stage of ZeRO."""
    walk(train, chosen(tmp_path, model_dir, 2, stage), tmp_path / "done.pt")
    compare(alone, torch.load(tmp_path / "done.pt"))


@EVERY_ZERO_STAGE
def test_two_ranks_with_adapters_are_one(walk, tmp_path, model_dir, alone_with_adapters, stage):
    """The same with LoRA, whose reference is the policy with its adapters off; what an export has of them, too. At stage 3
    no parameter is small enough to be kept whole."""
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage3_param_persistence_threshold": 0}}')
    cut = {"optimizer": {"deepspeed": tmp_path / "ds.json"}} if stage == 3 else {}
    walk(train, chosen(tmp_path, model_dir, 2, stage, **ADAPTERS, **cut), tmp_path / "done.pt")
    compare(alone_with_adapters, torch.load(tmp_path / "done.pt"))


def compare(alone, together):
    (expected_metrics, expected), (metrics, weights) = alone, together
    for one, other in zip(expected_metrics, metrics, strict=True):
        packing = {"micro_batches": 0, "tokens_computed": 0}
        assert {**other, **packing} == pytest.approx({**one, **packing}, abs=1e-5, rel=1e-5)
    for name, tensor in expected.items():
        torch.testing.assert_close(weights[name], tensor, rtol=0, atol=1e-5)
