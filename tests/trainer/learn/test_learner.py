"""Several optimizer steps from one plan."""

from dataclasses import replace

import numpy as np
import pytest

from claw_r1.trainer.algorithms.corrections import CorrectionBounds
from claw_r1.trainer.learn.examples import LearnerBatch, mini_batches
from claw_r1.trainer.learn.learner import Learner, Pace
from claw_r1.weights.manifest import WeightsManifest
from tests.trainer.examples import example
from tests.trainer.learn.tiny_engine import OBJECTIVE, engine

pytestmark = pytest.mark.process


def plan(groups=4, size=2, sequence=0, seed=3):
    """Groups of one call each; the last trajectory of the first group has nothing to train."""
    dice = np.random.default_rng(sequence)
    examples = [
        example(dice.integers(0, 32, 3), dice.integers(0, 32, 5), advantage=float(n % 2 or -1), index=n)
        for n in range(groups * size)
        if n != size - 1
    ]
    grouped = [replace(each, group=int(each.trajectories[0]) // size) for each in examples]
    return LearnerBatch(grouped, 0, seed, (size,) * groups, sequence)


def test_groups_are_dealt_whole_anew_for_each_epoch_by_the_seed():
    """Each group once per epoch; a step counts all trajectories of its groups, untrained ones too."""
    parts = mini_batches(plan(groups=6), 3, 2)
    dealt = [sorted({each.group for each in part.examples}) for part in parts]
    for epoch in (dealt[:3], dealt[3:]):
        assert sorted(group for groups in epoch for group in groups) == list(range(6))
    assert dealt[:3] != dealt[3:]
    assert [part.trajectories for part in parts] == [4] * 6
    assert dealt == [sorted({each.group for each in part.examples}) for part in mini_batches(plan(groups=6), 3, 2)]
    assert dealt != [sorted({each.group for each in part.examples}) for part in mini_batches(plan(6, seed=4), 3, 2)]


def test_a_part_without_examples_is_no_step():
    """It keeps its number, so that the schedule of the others does not depend on it."""
    batch = plan(groups=3)
    batch = replace(batch, examples=[each for each in batch.examples if each.group == 1])
    (part,) = mini_batches(batch, 3, 1)
    assert (part.index, part.trajectories) == (int(np.random.default_rng(3).permutation(3).tolist().index(1)), 2)


def trained(model_dir, pace, batches, **changes):
    subject = Learner(engine(model_dir), replace(OBJECTIVE, **changes), pace)
    return subject, [subject.train(batch) for batch in batches]


def test_every_step_has_the_rate_of_its_number(model_dir):
    """Two parts, two epochs: four steps a batch, one version; the last rate of each batch is reported."""
    pace = Pace(mini_batches=2, epochs=2, schedule="linear", warmup_steps=2, steps_max=7)
    _, metrics = trained(model_dir, pace, [plan(sequence=0), plan(sequence=1)])
    assert [values["optimizer_steps"] for values in metrics] == [4, 4]
    assert [values["learning_rate"] for values in metrics] == pytest.approx([1e-2 * 0.75, 0.0])
    assert metrics[0]["trained_tokens"] == 2 * 7 * 5


def test_a_replay_from_a_checkpoint_repeats_every_step(model_dir, tmp_path):
    """Parts, order and rates are functions of the plan."""
    pace = Pace(mini_batches=2, epochs=2, schedule="cosine", steps_max=20)
    subject, _ = trained(model_dir, pace, [plan(sequence=0)], correction="decoupled")
    subject.save(tmp_path, {})()
    expected = subject.train(plan(sequence=1))
    again, _ = trained(model_dir, pace, [], correction="decoupled")
    again.load(tmp_path)
    assert again.train(plan(sequence=1)) == expected
    assert WeightsManifest.of(again.named_tensors()) == WeightsManifest.of(subject.named_tensors())


def test_the_proximal_policy_is_the_one_before_the_first_step(model_dir):
    """Measured against it, the distance to the engine is that of one step; against each step's own policy it grows."""
    several = Pace(mini_batches=1, epochs=3)
    (_, [one]), (_, [anchored]), (_, [drifting]) = (
        trained(model_dir, pace, [plan()], correction=correction)
        for pace, correction in ((Pace(), "none"), (several, "metrics"), (several, "none"))
    )
    assert anchored["kl_k1"] == pytest.approx(one["kl_k1"], rel=1e-5)
    assert abs(drifting["kl_k1"] - one["kl_k1"]) > 1e-3
    assert anchored["max_logprob_gap"] == drifting["max_logprob_gap"] == one["max_logprob_gap"]


def test_what_teaches_nothing_needs_no_proximal_policy(model_dir):
    """Rows without gradient are in no pass but that of their sample, and change nothing."""
    whole = plan()
    for each in whole.examples[:3]:
        each.advantages[:] = 0.0
    pace, rows = Pace(epochs=2), []
    subject = Learner(engine(model_dir), replace(OBJECTIVE, correction="decoupled", silent_sample=1), pace)
    subject._policy._model._engine.register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    values = subject.train(whole)
    assert sum(rows) == 4 + 2 * (4 + 1)
    assert (values["trained_tokens"], values["unscored_tokens"]) == (2 * 35, 2 * 10)


def test_decoupled_clips_against_the_proximal_policy(model_dir):
    """Behaviour far away: the plain ratio is clipped at once, decoupled has a ratio of 1 at the first step and cuts the weight."""
    far = plan()
    for each in far.examples:
        each.behaviour[:] = -9.0
    (_, [plain]), (_, [decoupled]), (_, [tis]) = (
        trained(model_dir, Pace(), [far], correction=name) for name in ("none", "decoupled", "tis")
    )
    assert plain["clip_share"] > 0.3
    assert decoupled["clip_share"] == 0
    assert decoupled["correction_mean"] == pytest.approx(2.0, abs=0.2)
    assert decoupled["grad_norm"] == pytest.approx(tis["grad_norm"], rel=1e-5)
    assert decoupled["grad_norm"] < 0.9 * plain["grad_norm"]


def test_a_mask_takes_whole_responses_out(model_dir):
    """One of seven responses was sampled by another policy: it teaches nothing, and the share says so."""
    examples = plan().examples
    for each in examples:
        each.behaviour[:] = -3.4
    examples[0].behaviour[:] = -15.0
    batch = replace(plan(), examples=examples)
    _, [masked] = trained(model_dir, Pace(), [batch], bounds=CorrectionBounds(mask=(0.001, 50.0)))
    assert masked["masked_share"] == pytest.approx(1 / 7)


def test_an_entropy_bonus_raises_the_entropy(model_dir):
    """Without any advantage."""
    batch = plan()
    for each in batch.examples:
        each.advantages[:] = 0.0
    _, metrics = trained(model_dir, Pace(), [batch] * 6, entropy_bonus=0.1)
    assert metrics[-1]["entropy"] > metrics[0]["entropy"] + 0.05


def test_a_bad_reply_of_an_older_policy_teaches_nothing(model_dir):
    """All were sampled by a policy that was surer of them: those with a negative advantage, four of seven, are masked, and count."""
    examples = plan().examples
    for each in examples:
        each.behaviour[:] = -0.1
    batch, bounds = replace(plan(), examples=examples), CorrectionBounds(negatives=1.0)
    _, [masked] = trained(model_dir, Pace(), [batch], bounds=bounds)
    _, [loose] = trained(model_dir, Pace(), [batch], bounds=CorrectionBounds(negatives=9.0))
    assert masked["masked_share"] == pytest.approx(sum(each.advantages[0] < 0 for each in examples) / 7)
    assert loose["masked_share"] == 0
