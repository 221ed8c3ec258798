"""Scales of tokens, and losses that do not depend on how a batch is cut."""

import pytest
import torch

from claw_r1.trainer.algorithms.losses import LOSSES, bound
from claw_r1.trainer.algorithms.norms import NORMS
from claw_r1.trainer.learn.layouts import padded_rows
from claw_r1.trainer.learn.logprobs import TokenScores
from claw_r1.trainer.learn.objective import Objective, summed
from tests.trainer.examples import example

LOSS = bound("ppo_dual_clip", clip_low=0.2, clip_high=0.28)


def responses(*lengths):
    return [example([1], range(length), index=index) for index, length in enumerate(lengths)]


def test_token_mean_weighs_all_tokens_of_the_batch_alike():
    """Long sequences weigh by their tokens."""
    scales = [each.scale.tolist() for each in Objective(loss=LOSS).scaled(responses(3, 1), 2)]
    assert scales == [[0.25] * 3, [0.25]]


def test_by_a_constant_a_token_weighs_the_same_in_every_batch():
    """Dr. GRPO: 1 / (trajectories x constant) per token."""
    by_constant = Objective(loss=LOSS, norm="constant", loss_length=100)
    for lengths in ((1, 1), (1, 3)):
        assert by_constant.scaled(responses(*lengths), 2)[0].scale.tolist() == pytest.approx([1 / 200])


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("norm", NORMS)
def test_parts_add_up_to_the_whole(loss, norm):
    """One pass over all examples, or one pass for each; responses are numbered anew in every part."""
    objective = Objective(loss=bound(loss, clip_low=0.2, clip_high=0.28), norm=norm)
    examples = objective.scaled(responses(4, 1, 2), 3)

    def loss_of(part):
        tokens = padded_rows(part, torch.device("cpu")).tokens
        logprobs = -3.0 - 0.1 * tokens.ids.float()
        return float(summed(objective.losses(tokens, TokenScores(logprobs, logprobs)), tokens))

    assert sum(loss_of([each]) for each in examples) == pytest.approx(loss_of(examples), abs=1e-6)
