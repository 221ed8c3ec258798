"""Examples without gradient: not computed, counted all the same, and a sample of them measured."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from claw_r1.trainer.learn.objective import Objective
from tests.trainer.examples import example
from tests.trainer.learn.tiny_engine import HOW, OBJECTIVE, SETTINGS, batch, engine

pytestmark = pytest.mark.process


class Everything(Objective):
    """As if every example had a gradient."""

    def teaches(self, example):
        return True


def mixed(silent):
    """The eight examples of `batch`, all with an advantage, and `silent` without."""
    taught = [replace(each, advantages=np.sign(each.advantages + 0.5).astype(np.float32)) for each in batch(0)]
    others = [example([3, 1, 4], range(5, 9), advantage=0.0, index=8 + n) for n in range(silent)]
    return OBJECTIVE.scaled([*taught, *others], 8 + silent)


def outcome(model_dir, objective, examples):
    subject, rows = engine(model_dir, replace(SETTINGS, micro_batch_tokens_max=60, layout="rows")), []
    subject._model._engine.register_forward_pre_hook(
        lambda _, inputs: rows.append((len(inputs[0]), torch.is_grad_enabled()))
    )
    step = subject.train(examples, **{**HOW, "objective": objective})
    weights = {name: tensor.clone() for name, tensor in subject.named_tensors()}
    computed = {learns: sum(count for count, grad in rows if grad is learns) for learns in (True, False)}
    return step.totals.means(), weights, computed


def test_what_teaches_nothing_changes_no_bit_and_costs_a_sample(model_dir):
    """
    The same weights as with everything computed; the divisor counts all; metrics are those of all, equal ones being alike.

    To a thousandth of a step of Adam, whose size is the learning rate: which rows stand in a product decides the order of
    its sums, differently on each kind of CPU.
    """
    examples = mixed(silent=40)
    objective = replace(OBJECTIVE, silent_sample=4)
    means, weights, computed = outcome(model_dir, objective, examples)
    full, expected, all_rows = outcome(model_dir, Everything(loss=OBJECTIVE.loss), examples)
    assert computed == {True: 8, False: 4}
    assert all_rows == {True: 48, False: 0}
    for name, tensor in weights.items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-3 * SETTINGS.learning_rate)
    assert (means.pop("unscored_tokens"), full.pop("unscored_tokens")) == (36 * 4, 0)
    assert means.pop("gap_tokens") == full.pop("gap_tokens") - 36 * 4
    assert means == pytest.approx(full, rel=1e-5)


def test_a_batch_that_teaches_nothing_still_steps(model_dir):
    """One example is trained for nothing, so that momentum does what it would have done."""
    subject = engine(model_dir)
    subject.train(batch(0), **HOW)
    before = {name: tensor.clone() for name, tensor in subject.named_tensors()}
    step = subject.train(OBJECTIVE.scaled([example([1], range(9), advantage=0.0)] * 3, 3), **HOW)
    assert (step.grad_norm, step.micro_batches, step.skipped) == (0.0, 1, False)
    assert any(not torch.equal(before[name], tensor) for name, tensor in subject.named_tensors())


def test_which_terms_teach():
    """An advantage, unless its token has no policy loss; cross-entropy; an entropy bonus at any token with policy loss."""
    plain, curious = Objective(loss=OBJECTIVE.loss), Objective(loss=OBJECTIVE.loss, entropy_bonus=0.01)
    zero, one = example([1], [2], advantage=0.0), example([1], [2], advantage=1.0)
    muted, imitated = (replace(one, weights=np.array([w], np.float32)) for w in ([0, 0, 1], [0, 1, 0]))
    assert [plain.teaches(each) for each in (zero, one, muted, imitated)] == [False, True, False, True]
    assert [curious.teaches(each) for each in (zero, one, muted, imitated)] == [True, True, False, True]
    assert plain.teaches(example([1], [2], advantage=float("nan")))


def test_the_sample_is_a_function_of_the_seed():
    """A replay measures the same rows."""
    examples = [example([1], [2], advantage=float(n == 0), index=n) for n in range(50)]
    objective = Objective(loss=OBJECTIVE.loss, silent_sample=7)
    first, again, other = (objective.split(examples, seed) for seed in (1, 1, 2))
    indices = [[int(each.responses[0]) for each in split.silent] for split in (first, again, other)]
    assert indices[0] == indices[1] != indices[2]
    assert (len(first.taught), len(indices[0]), first.weight) == (1, 7, 7.0)
