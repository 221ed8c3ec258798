"""A step that is not finite leaves no trace: at every stage, in every precision."""

import math
from dataclasses import replace

import pytest
import torch

from claw_r1.trainer.algorithms.losses import TokenLosses
from claw_r1.trainer.config.optimizer import OptimizerSettings
from tests.soak import in_soak
from tests.trainer.learn.tiny_engine import HOW, OBJECTIVE, SETTINGS, batch, engine

pytestmark = pytest.mark.process
CASES = [
    (0, "fp32", "none"), in_soak(0, "bf16", "none"), in_soak(1, "fp32", "none"), (1, "bf16", "none"),
    in_soak(2, "fp32", "none"), in_soak(2, "bf16", "none"), in_soak(3, "fp32", "none"), (3, "bf16", "none"),
    in_soak(1, "fp32", "cpu"), (1, "bf16", "cpu"), in_soak(2, "fp32", "cpu"), in_soak(2, "bf16", "cpu"),
    in_soak(3, "fp32", "cpu"), in_soak(3, "bf16", "cpu"),
]  # fmt: skip
"""Nothing partitioned and everything, the step that stage 0 has in bf16, and an optimizer in host memory."""


def vertical(logprobs, behaviour, advantages, sequences):  # every loss is called alike
    """A loss of 0 whose gradient is infinite."""
    return TokenLosses((logprobs - logprobs.detach()).sqrt(), torch.zeros_like(logprobs).bool())


def infinite(logprobs, behaviour, advantages, sequences):  # every loss is called alike
    """An infinite loss whose gradient is finite."""
    return TokenLosses(logprobs * advantages + math.inf, torch.zeros_like(logprobs).bool())


def poisoned(advantage):
    """One advantage of the last example, which stands in the first of several micro-batches."""
    examples = batch(1)
    examples[-1].advantages[0] = advantage
    return {"examples": examples}


BAD = {
    "advantage": poisoned(math.nan),
    "large advantage": poisoned(math.inf),
    "loss": {"examples": batch(1), "objective": replace(OBJECTIVE, loss=infinite)},
    "gradient": {"examples": batch(1), "objective": replace(OBJECTIVE, loss=vertical)},
}


def memory(subject):
    """Weights and optimizer state, bit for bit; a tensor of no bytes is a place holder of stage 3."""
    tensors = {name: tensor.clone() for name, tensor in subject.named_tensors()}
    for index, state in enumerate(subject._model._engine.basic_optimizer.state.values()):
        tensors |= {f"{index}.{name}": value.clone() for name, value in state.items() if value.numel()}
    return tensors


@pytest.mark.parametrize(("stage", "precision", "offload"), CASES)
def test_a_step_that_is_not_finite_is_skipped_whole(model_dir, stage, precision, offload):
    """Weights and optimizer state keep every bit, and what comes after is what would have come without it."""
    own = OptimizerSettings(offload=offload)
    settings = replace(SETTINGS, zero_stage=stage, precision=precision, micro_batch_tokens_max=40, optimizer=own)
    subject, control = engine(model_dir, settings), engine(model_dir, settings)
    assert not subject.train(batch(0), **HOW).skipped
    control.train(batch(0), **HOW)
    before = memory(subject)
    assert len(before) > 24
    for name, bad in BAD.items():
        step = subject.train(**{**HOW, **bad})
        assert step.skipped, name
        assert not math.isfinite(step.grad_norm)
        after = memory(subject)
        assert all(torch.equal(before[key], after[key]) for key in before), name
    assert not subject.train(batch(2), **HOW).skipped
    control.train(batch(2), **HOW)
    assert all(torch.equal(tensor, memory(control)[key]) for key, tensor in memory(subject).items())
