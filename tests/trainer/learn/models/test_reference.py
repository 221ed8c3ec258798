"""The reference: scored like the policy, charged in the loss or off the reward."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from claw_r1.trainer.algorithms.divergence import DIVERGENCES
from claw_r1.trainer.algorithms.losses import bound
from claw_r1.trainer.config.reference import ReferenceSettings
from claw_r1.trainer.errors import ModelInvalid
from claw_r1.trainer.learn.engine import EngineSettings, TrainingEngine, join_alone
from claw_r1.trainer.learn.examples import LearnerBatch, column
from claw_r1.trainer.learn.learner import Learner
from claw_r1.trainer.learn.models.reference import FrozenModel, Reference, charged
from claw_r1.trainer.learn.objective import Objective
from tests.trainer.examples import example
from tests.trainer.tiny import VOCABULARY, make_model

pytestmark = pytest.mark.process
HOW = {"device": torch.device("cpu"), "precision": "fp32", "vocabulary": VOCABULARY, "micro_batch_tokens_max": 20}
IN_LOSS = ReferenceSettings(coefficient=0.5)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    join_alone(HOW["device"])  # as the engine does before it: a reference alone meets no ranks
    return make_model(tmp_path_factory.mktemp("model") / "tiny")


def reference(model_dir, settings=IN_LOSS, **changes):
    return Reference(FrozenModel(model_dir, "reference.model_dir", **{**HOW, **changes}).logprobs, settings)


def batch(advantage=0.0):
    """Seven calls of unequal length at two temperatures, not in order of length."""
    dice = random.Random(3)
    return [
        example(
            [dice.randrange(VOCABULARY) for _ in range(dice.randint(2, 6))],
            [dice.randrange(VOCABULARY) for _ in range(dice.randint(1, 9))],
            temperature=0.7 if index % 2 else 1.0,
            advantage=advantage,
            index=index,
        )
        for index in range(7)
    ]


def test_each_token_has_the_logprob_of_transformers_at_its_own_temperature(model_dir):
    """In the order of the examples, whatever the micro-batches are."""
    scored, _ = reference(model_dir).compared(batch())
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval()
    for each in scored:
        ids = torch.from_numpy(each.ids).long()
        with torch.no_grad():
            logits = model(ids[None]).logits[0, :-1] / float(each.temperatures[0])
        expected = logits.log_softmax(-1).gather(-1, ids[1:, None])[:, 0].numpy()[each.at - 1]
        np.testing.assert_allclose(each.reference, expected, atol=1e-5)


@pytest.mark.parametrize(("name", "expected"), [("k1", [0.2, -0.5, 0]), ("k3", [0.018731, 0.148721, 0])])
def test_a_reward_is_charged_with_the_divergence_of_its_token(name, expected):
    """Coefficient and the token's third weight multiply the numbers of the issue."""
    one = example([1], [2, 3, 4])
    one = replace(
        one,
        behaviour=np.array([-1, -2, -0.5], dtype=np.float32),
        reference=np.array([-1.2, -1.5, -0.5], dtype=np.float32),
        rewards=np.array([0, 0, 1], dtype=np.float32),
        weights=np.array([[1, 0, 1], [1, 0, 1], [1, 0, 0.5]], dtype=np.float32),
    )
    [after] = charged([one], name, 0.1)
    np.testing.assert_allclose(after.rewards, np.array([0, 0, 1]) - 0.1 * np.array(expected), atol=1e-6)


def learner(model_dir, reference_dir, settings, learning_rate=1e-2):
    policy = TrainingEngine(model_dir, EngineSettings(learning_rate=learning_rate, micro_batch_tokens_max=20))
    objective = Objective(
        loss=bound("ppo_clip", clip_low=0.2, clip_high=0.28),
        divergence=DIVERGENCES[settings.kl_name],
        kl_coefficient=settings.coefficient,
    )
    return Learner(policy, objective, reference=reference(reference_dir, settings))


@pytest.mark.parametrize("name", ["k2", "k3"])
def test_the_term_in_the_loss_pulls_the_policy_to_the_reference(tmp_path, model_dir, name):
    """Without any advantage, steps on the divergence alone shrink it; at the reference itself they have nothing to do."""
    other = make_model(tmp_path / "other", seed=5)
    settings = ReferenceSettings(coefficient=1.0, kl=name)
    subject = learner(model_dir, other, settings)
    examples = batch()
    losses = [subject.train(LearnerBatch(examples, 0, 1, (1,) * 7))["loss"] for _ in range(12)]
    assert losses[-1] < losses[0] / 3
    at_home = learner(model_dir, model_dir, settings).train(LearnerBatch(examples, 0, 1, (1,) * 7))
    assert at_home["loss"] == pytest.approx(0, abs=1e-6)
    assert at_home["grad_norm"] == pytest.approx(0, abs=1e-4)


def test_the_metrics_are_those_of_what_was_sampled(model_dir):
    """KL(behaviour || reference), whatever the policy became meanwhile."""
    examples = batch()
    values = learner(model_dir, model_dir, IN_LOSS).train(LearnerBatch(examples, 0, 1, (1,) * 7))
    scored, _ = reference(model_dir).compared(examples)
    difference = column(scored, "behaviour") - column(scored, "reference")
    assert values["reference_kl_k1"] == pytest.approx(difference.mean(), rel=1e-5)
    assert values["reference_kl_k3"] == pytest.approx((np.exp(-difference) - 1 + difference).mean(), rel=1e-5)


def test_another_vocabulary_is_refused(model_dir):
    """In one line that names the directory and both sizes."""
    with pytest.raises(ModelInvalid, match=f"{model_dir} has 32 tokens and the policy has 40"):
        reference(model_dir, vocabulary=40)
