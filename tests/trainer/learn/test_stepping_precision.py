"""bf16: gradients of many micro-batches are summed in fp32, and small steps are not lost."""

import random
from dataclasses import replace

import pytest
import torch
from deepspeed.utils import safe_get_full_fp32_param

from tests.soak import in_soak
from tests.trainer.examples import example
from tests.trainer.learn.tiny_engine import HOW, OBJECTIVE, SETTINGS, batch, engine

pytestmark = pytest.mark.process
STEPS = 60


def even_rows(count):
    dice = random.Random(0)

    def ids(length):
        return [dice.randrange(32) for _ in range(length)]

    rows = [example(ids(4), ids(8), advantage=1.0 if n % 2 else -2.0, index=n) for n in range(count)]
    return OBJECTIVE.scaled(rows, count)


def gradient(model_dir, settings, rows):
    """That of one step, as AdamW saw it: a tenth of it is its first mean."""
    subject = engine(model_dir, replace(settings, grad_clip=1e9, precision="bf16"))
    step = subject.train(rows, **HOW)
    states = subject._model._engine.basic_optimizer.state.values()
    return torch.cat([state["exp_avg"].flatten() for state in states if state["exp_avg"].numel()]), step


@pytest.mark.parametrize("stage", [in_soak(0), 1, in_soak(2), in_soak(3)])
def test_64_micro_batches_are_one_pass(model_dir, stage):
    """Summed in bf16, they are 1 % apart; summed in fp32, what is left is the rounding within each."""
    rows, settings = even_rows(64), replace(SETTINGS, zero_stage=stage)
    whole, one = gradient(model_dir, settings, rows)
    parts, many = gradient(model_dir, replace(settings, micro_batch_tokens_max=12), rows)
    assert (one.micro_batches, many.micro_batches) == (1, 64)
    assert float((parts - whole).norm() / whole.norm()) < 6e-3


def movement(model_dir, precision, stage, steps):
    """Of the weights that the optimizer keeps, over steps at learning rate 1e-6."""
    subject = engine(model_dir, replace(SETTINGS, precision=precision, zero_stage=stage, learning_rate=1e-6))

    def masters():
        parameters = subject._model._engine.module.parameters()
        if stage == 0 and precision == "fp32":
            return torch.cat([each.detach().flatten() for each in parameters])
        return torch.cat([safe_get_full_fp32_param(each).flatten() for each in parameters])

    before = masters().clone()
    for step in range(steps):
        subject.train(batch(step % 4), **HOW)
    return masters() - before


@pytest.fixture(scope="module")
def expected(model_dir):
    return movement(model_dir, "fp32", 0, STEPS)


@pytest.mark.parametrize("stage", [0, in_soak(3)])
def test_small_steps_move_as_in_fp32(model_dir, expected, stage):
    """Each is far below the resolution of bf16 weights; the fp32 copies collect them."""
    assert float(expected.abs().max()) > STEPS * 5e-7
    moved = movement(model_dir, "bf16", stage, STEPS)
    assert float(torch.nn.functional.cosine_similarity(moved, expected, dim=0)) >= 0.99
