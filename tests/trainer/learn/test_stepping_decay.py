"""Weight decay by groups, and the optimizer's state in host memory: the same numbers as torch's own."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM

from claw_r1.trainer.config.optimizer import OptimizerSettings
from claw_r1.trainer.errors import SettingsInvalid
from claw_r1.trainer.learn.deepspeed_config import config_of
from claw_r1.trainer.learn.stepping import StepSettings, decay_groups
from tests.trainer.learn.tiny_engine import HOW, LOSS, SETTINGS, batch, engine, train

pytestmark = pytest.mark.process
DECAY, RATE = 5.0, 1e-3
"""A small rate and a decay that acts as strongly all the same: AdamW's step for a gradient near its epsilon is rounding times the rate."""


def in_torch(model_dir, decayed, steps):
    """Steps of torch's AdamW, a group for what `decayed` names and one for all others."""
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32, attention_dropout=0.0)
    named = dict(model.named_parameters())
    groups = [
        {"params": [each for name, each in named.items() if decayed(name) is own], "weight_decay": decay}
        for own, decay in ((True, DECAY), (False, 0.0))
    ]
    optimizer = torch.optim.AdamW([each for each in groups if each["params"]], lr=RATE)
    for step in range(steps):
        examples = batch(step)
        total, tokens = torch.zeros(()), sum(len(each.at) for each in examples)
        for each in examples:
            ids = torch.from_numpy(each.ids).long()[None]
            logprobs = model(ids).logits[0, :-1].log_softmax(-1).gather(-1, ids[0, 1:, None])[:, 0]
            trained = logprobs[torch.from_numpy(each.at) - 1]
            about = map(torch.from_numpy, (each.advantages, each.responses))
            total = total + LOSS(trained, torch.tensor(-3.4), *about).values.sum()
        optimizer.zero_grad()
        (total / tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return {name: each.detach() for name, each in named.items()}


def is_weight(name):
    """By name, as a person would list them."""
    return "norm" not in name and "bias" not in name and "embed" not in name


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize(("decay", "decayed"), [("weights", is_weight), ("all", lambda _: True)])
def test_decay_acts_on_weights_alone(model_dir, stage, decay, decayed):
    """Three steps with a large decay, at every stage; with `all` it acts on norms and embeddings, too, which is another model."""
    expected = in_torch(model_dir, decayed, steps=3)
    own = OptimizerSettings(decay=decay)
    chosen = replace(SETTINGS, zero_stage=stage, learning_rate=RATE, weight_decay=DECAY, optimizer=own)
    _, weights = train(model_dir, chosen, steps=3)
    for name, tensor in weights.items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-5, atol=1e-5)
    other = in_torch(model_dir, lambda name: not decayed(name) or is_weight(name), steps=3)
    assert decay == "all" or any(not torch.allclose(weights[name], other[name], atol=1e-4) for name in weights)


def test_a_tied_head_is_an_embedding_and_what_is_frozen_is_in_no_group():
    """Vectors, embeddings and the head that shares theirs are not decayed."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.body = nn.Embedding(4, 3), nn.Linear(3, 3)
            self.frozen, self.norm = nn.Linear(3, 3).requires_grad_(False), nn.LayerNorm(3)
            self.head = nn.Linear(3, 4, bias=False)
            self.head.weight = self.embed.weight

    tied = Tied()
    settings = StepSettings(learning_rate=1.0, precision="fp32", weight_decay=0.1)
    weights, others = decay_groups(tied, settings)
    assert (weights["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    assert [id(each) for each in weights["params"]] == [id(tied.body.weight)]
    expected = {id(each) for each in (tied.embed.weight, tied.body.bias, tied.norm.weight, tied.norm.bias)}
    assert {id(each) for each in others["params"]} == expected
    (whole,) = decay_groups(tied, replace(settings, optimizer=OptimizerSettings(decay="all")))
    assert len(whole["params"]) == 5


@pytest.mark.parametrize("stage", [0, 2])
def test_groups_keep_their_decay_over_a_load(model_dir, tmp_path, stage):
    """A checkpoint brings the groups that it was written with; the settings' decay acts on the weights, and on no others."""
    chosen = replace(SETTINGS, zero_stage=stage, weight_decay=DECAY)
    whole, before = engine(model_dir, chosen), engine(model_dir, replace(chosen, weight_decay=0.1))
    before.save(tmp_path, {})()
    after = engine(model_dir, chosen)
    after.load(tmp_path)
    for subject in (whole, after):
        subject.train(batch(0), **HOW)
    for (name, one), (_, other) in zip(whole.named_tensors(), after.named_tensors(), strict=True):
        assert torch.equal(one, other), name


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_an_offloaded_optimizer_learns_the_same(model_dir, tmp_path, stage, precision):
    """Weights of three steps, over a checkpoint, against an optimizer that stays where it is."""
    kept = replace(SETTINGS, zero_stage=stage, precision=precision, weight_decay=0.1)
    offloaded = replace(kept, optimizer=OptimizerSettings(offload="cpu"))
    first = engine(model_dir, offloaded)
    first.train(batch(0), **HOW)
    first.save(tmp_path, {})()
    subject, reference = engine(model_dir, offloaded), engine(model_dir, kept)
    subject.load(tmp_path)
    reference.train(batch(0), **HOW)
    for step in (1, 2):
        subject.train(batch(step), **HOW)
        reference.train(batch(step), **HOW)
    tolerance = 1e-5 if precision == "fp32" else 2e-2
    for (name, one), (_, other) in zip(subject.named_tensors(), reference.named_tensors(), strict=True):
        torch.testing.assert_close(one.clone(), other.clone(), rtol=tolerance, atol=tolerance, msg=name)


def test_there_is_nothing_to_offload_at_stage_0(tmp_path):
    """Said by name; and a file that says the same as the setting agrees, one that says otherwise is a contradiction."""
    how = {"precision": "fp32", "grad_clip": 1.0, "offload": "cpu"}
    with pytest.raises(SettingsInvalid, match=r"optimizer\.offload: cpu needs zero_stage 1, 2 or 3"):
        config_of(zero_stage=0, **how)
    path = tmp_path / "ds.json"
    path.write_text('{"zero_optimization": {"offload_optimizer": {"device": "cpu", "pin_memory": false}}}')
    merged = config_of(zero_stage=2, file=path, **how)
    assert merged["zero_optimization"]["offload_optimizer"] == {"device": "cpu", "pin_memory": False}
    assert merged["zero_force_ds_cpu_optimizer"] is False
    path.write_text('{"zero_optimization": {"offload_optimizer": {"device": "nvme"}}}')
    with pytest.raises(SettingsInvalid, match=r'device: "nvme", and setting optimizer\.offload makes it "cpu"'):
        config_of(zero_stage=2, file=path, **how)
