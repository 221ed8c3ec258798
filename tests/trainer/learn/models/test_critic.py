"""The critic: values and advantages, its steps under every ZeRO stage, its bytes."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import linear
from transformers import AutoModel, AutoModelForTokenClassification

from claw_r1.trainer.algorithms.values import value_loss
from claw_r1.trainer.config.critic import CriticSettings
from claw_r1.trainer.errors import CheckpointInvalid, ModelInvalid
from claw_r1.trainer.learn.engine import join_alone
from claw_r1.trainer.learn.examples import column, with_column
from claw_r1.trainer.learn.models.critic import Critic, advantages_of, scalar_head
from claw_r1.trainer.learn.stepping import StepSettings
from tests.soak import in_soak
from tests.trainer.examples import example
from tests.trainer.tiny import VOCABULARY

pytestmark = pytest.mark.process
STEPPING = StepSettings(learning_rate=1e-2, precision="fp32")
ISSUE = CriticSettings(gamma=0.99, lam=0.95)
"""The issue's: r 0, 0, 1 and V .5, .4, .8 give .441584, .580100, .2."""


def critic(model_dir, stepping=STEPPING, settings=None, tokens_max=40, vocabulary=VOCABULARY, layout="auto"):
    join_alone(torch.device("cpu"))
    settings = settings or CriticSettings(lam=1.0, whiten=False)
    how = {
        "device": torch.device("cpu"),
        "vocabulary": vocabulary,
        "micro_batch_tokens_max": tokens_max,
        "layout": layout,
    }
    return Critic(model_dir, settings, stepping, **how)


def batch(seed=3):
    """Eight calls of unequal length, some of which are rewarded at their end."""
    dice = random.Random(seed)
    examples = []
    for index in range(8):
        prompt = [dice.randrange(VOCABULARY) for _ in range(dice.randint(2, 6))]
        response = [dice.randrange(VOCABULARY) for _ in range(dice.randint(1, 9))]
        examples.append(example(prompt, response, index=index))
        examples[-1].rewards[-1] = index % 2
    return examples


def test_advantages_skip_context_and_cross_from_call_to_call():
    """The issue's numbers over two calls of one row with context between, and over two rows of one trajectory."""
    one_row = example([1], [2, 9, 9, 3, 4])
    kept = np.array([0, 3, 4])
    of_kept = {
        name: getattr(one_row, name)[kept]
        for name in ("at", "behaviour", "temperatures", "advantages", "versions", "trajectories", "weights", "scale")
    }
    one_row = replace(one_row, **of_kept, responses=np.array([0, 1, 1]), rewards=np.array([0, 0, 1], dtype=np.float32))
    expected = [0.441584, 0.5801, 0.2]
    np.testing.assert_allclose(advantages_of([one_row], np.array([0.5, 0.4, 0.8]), ISSUE), expected, atol=1e-6)
    last, first = example([1, 2], [3, 4], index=1), example([7], [8], index=0)
    last.rewards[-1], first.trajectories[:] = 1, 1
    np.testing.assert_allclose(
        advantages_of([last, first], np.array([0.4, 0.8, 0.5]), ISSUE), [0.5801, 0.2, 0.441584], atol=1e-6
    )


def test_between_calls_another_discount_may_count():
    """turn_gamma from the last token of a call to the first of the next."""
    two = [example([1], [2], index=0), example([3], [4], index=1)]
    two[1].trajectories[:], two[1].rewards[:] = 0, 1
    settings = CriticSettings(gamma=1.0, lam=1.0, turn_gamma=0.5)
    np.testing.assert_allclose(advantages_of(two, np.zeros(2), settings), [0.5, 1.0])


def test_a_new_critic_expects_nothing(model_dir):
    """Its head is zero: values are 0, and with lambda 1 an advantage is what was earned from there on."""
    judged, metrics = critic(model_dir).judged(batch())
    assert metrics["value_mean"] == 0
    assert metrics["explained_variance"] == 0
    for index, each in enumerate(judged):
        assert each.advantages.tolist() == each.returns.tolist() == [index % 2] * len(each.at)
    white, _ = critic(model_dir, settings=CriticSettings(lam=1.0)).judged(batch())
    assert column(white, "advantages").mean() == pytest.approx(0, abs=1e-6)
    assert column(white, "advantages").std() == pytest.approx(1, abs=1e-6)
    assert column(white, "returns").tolist() == column(judged, "returns").tolist()


def test_a_tree_gives_the_values_of_rows(model_dir):
    """Calls that begin alike, computed together: the layout is none of the critic's business."""
    shared = [5, 6, 7, 8, 9, 10, 11, 12]
    examples = [
        example([*shared, *each.ids[: int(each.at[0])].tolist()], each.ids[each.at].tolist()) for each in batch()
    ]
    of = {}
    for layout in ("rows", "tree"):
        subject = critic(model_dir, layout=layout)
        for number, each in enumerate(examples):
            each.rewards[-1] = number % 2
        for step in range(3):
            judged, _ = subject.judged(examples)
            subject.train(judged, seed=step)
        of[layout] = column(subject.judged(examples)[0], "values")
    np.testing.assert_allclose(of["tree"], of["rows"], atol=1e-5)
    assert np.abs(of["rows"]).max() > 0.01


def test_a_model_with_one_score_brings_its_head(tmp_path, model_dir):
    """A value or reward model as transformers saves it says what it said there."""
    saved = AutoModelForTokenClassification.from_pretrained(model_dir, num_labels=1, dtype=torch.float32).eval()
    with torch.no_grad():
        saved.score.weight.normal_()
        saved.score.bias.fill_(0.25)
    saved.save_pretrained(tmp_path / "scored")
    judged, _ = critic(tmp_path / "scored").judged(batch())
    for each in judged:
        with torch.no_grad():
            expected = saved(torch.from_numpy(each.ids).long()[None]).logits[0, each.at - 1, 0]
        np.testing.assert_allclose(each.values, expected.numpy(), atol=1e-5)
    assert scalar_head(model_dir) == {}


def steps(model_dir, stepping, count=5, tokens_max=40):
    subject = critic(model_dir, stepping, tokens_max=tokens_max)
    seen = []
    for step in range(count):
        judged, _ = subject.judged(batch(step))
        values = subject.train(judged, seed=step)
        seen.append((values["value_loss"], values["critic_grad_norm"]))
    return seen, column(subject.judged(batch(9))[0], "values")


def plain_torch(model_dir, count=5):
    """The same without DeepSpeed, batching and scaling: one sequence at a time."""
    trunk = AutoModel.from_pretrained(model_dir, dtype=torch.float32, attention_dropout=0.0)
    weight, bias = torch.zeros(1, 32, requires_grad=True), torch.zeros(1, requires_grad=True)
    parameters = [*trunk.parameters(), weight, bias]
    optimizer = torch.optim.AdamW(parameters, lr=1e-2, weight_decay=0.0)

    def values(each):
        hidden = trunk(torch.from_numpy(each.ids).long()[None]).last_hidden_state[0]
        return linear(hidden[torch.from_numpy(each.at) - 1], weight, bias)[:, 0]

    seen = []
    for step in range(count):
        subject = batch(step)
        losses = []
        for each in subject:
            now = values(each)
            losses.append(value_loss(now, torch.full_like(now, float(each.rewards[-1])), now.detach(), clip=0.2).values)
        optimizer.zero_grad()
        loss = torch.cat(losses).mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        seen.append((loss.item(), norm.item()))
    return seen, torch.cat([values(each) for each in batch(9)]).detach().numpy()


def test_every_zero_stage_and_plain_torch_learn_the_same(model_dir):
    """Losses, gradient norms and values after five steps agree, in one pass or in many micro-batches."""
    reference, expected = plain_torch(model_dir)
    for changes in ({}, {"tokens_max": 20}, {"zero_stage": 2}, {"zero_stage": 3}):
        tokens_max = changes.pop("tokens_max", 1000)
        curve, values = steps(model_dir, replace(STEPPING, **changes), tokens_max=tokens_max)
        assert curve == [pytest.approx(step, rel=1e-4, abs=1e-5) for step in reference], changes
        np.testing.assert_allclose(values, expected, atol=1e-4)


@pytest.mark.parametrize("precision", ["fp32", in_soak("bf16")])
def test_it_comes_to_explain_the_returns(model_dir, precision):
    """Trained on one batch again and again, its values become the returns."""
    stage = 0 if precision == "fp32" else 1
    subject = critic(model_dir, replace(STEPPING, precision=precision, zero_stage=stage))
    for step in range(30):
        judged, metrics = subject.judged(batch())
        subject.train(judged, seed=step)
    assert metrics["explained_variance"] > 0.9


@pytest.mark.parametrize("stage", [in_soak(0), in_soak(2), 3])
def test_a_loaded_critic_goes_on_bit_for_bit(model_dir, tmp_path, stage):
    """Save, fresh critic, load: the same digest, and the same one after the next steps."""
    stepping = replace(STEPPING, zero_stage=stage)
    subject, fresh = critic(model_dir, stepping), critic(model_dir, stepping)
    assert fresh.digest() == subject.digest()

    def train(one, seed):
        one.train(one.judged(batch(seed))[0], seed=seed)

    train(subject, 0)
    assert fresh.digest() != subject.digest()
    subject.save(tmp_path)()
    fresh.load(tmp_path)
    assert fresh.digest() == subject.digest()
    for one in (subject, fresh):
        train(one, 1)
    assert fresh.digest() == subject.digest()
    with pytest.raises(CheckpointInvalid):
        fresh.load(tmp_path / "nothing")


@pytest.mark.parametrize("stage", [0, 1])
def test_returns_that_are_no_numbers_change_no_byte(model_dir, stage):
    """The guard of the policy is that of the critic."""
    subject = critic(model_dir, replace(STEPPING, zero_stage=stage))
    judged, _ = subject.judged(batch())
    before = subject.digest()
    bad = column(judged, "returns").copy()
    bad[0] = math.nan
    assert subject.train(with_column(judged, "returns", bad), seed=0)["critic_step_skipped"] == 1
    assert subject.digest() == before
    assert subject.train(judged, seed=0)["critic_step_skipped"] == 0
    assert subject.digest() != before


def test_another_vocabulary_is_refused(model_dir):
    """In one line that names the directory and both sizes."""
    with pytest.raises(ModelInvalid, match=f"critic.model_dir {model_dir} has 32 tokens and the policy has 40"):
        critic(model_dir, settings=CriticSettings(lam=1.0, model_dir=model_dir), vocabulary=40)
