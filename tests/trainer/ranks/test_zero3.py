"""ZeRO 3 builds a model in parts."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM

from claw_r1.trainer.learn import model as models
from claw_r1.trainer.learn.engine import join_alone
from claw_r1.trainer.learn.stepping import StepSettings
from tests.trainer import incarnation
from tests.trainer.learn.test_tensor_names import made
from tests.trainer.tiny import make_model

pytestmark = [pytest.mark.process, pytest.mark.slow]


def look(learner, path):
    """Elements of each parameter on this rank, the whole numbers, and all weights."""
    parameters = list(learner._learner._policy._causal.parameters())
    held = sum(each.numel() + each.ds_tensor.numel() for each in parameters)
    path.with_suffix(".json").write_text(json.dumps([held, sum(each.ds_numel for each in parameters)]))
    torch.save({name: tensor.clone() for name, tensor in learner.named_tensors()}, path)


@pytest.mark.parametrize("tied", [True, False])
def test_no_rank_holds_a_whole_model(walk, tmp_path, tied):
    """Right after loading a rank has half of each parameter; together they are what the directory holds."""
    model_dir = make_model(tmp_path / "model", tied=tied)
    settings = incarnation.settings(tmp_path / "out", model_dir, zero_stage=3, device="cpu", ranks=2)
    walk(look, settings, tmp_path / "weights")
    held, whole = json.loads((tmp_path / "weights.json").read_text())
    assert held <= whole / 2 + 24  # each part is rounded up
    expected = dict(AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).named_parameters())
    weights = torch.load(tmp_path / "weights")
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize("family", ["qwen3", "deepseek-v3"])
def test_buffers_are_those_of_a_whole_model(tmp_path, family):
    """In bf16, too: rotary frequencies in three digits would shift each position more than the one before it."""
    model_dir = made(tmp_path / "model", family)
    join_alone(torch.device("cpu"))
    whole = models.load(model_dir, "bf16")
    parts = models.load(model_dir, "bf16", StepSettings(learning_rate=1.0, precision="bf16", zero_stage=3).partition)
    expected, buffers = dict(whole.named_buffers()), dict(parts.named_buffers())
    assert {name: tensor.dtype for name, tensor in buffers.items()} == dict.fromkeys(expected, torch.float32)
    assert all(torch.equal(buffers[name], tensor) for name, tensor in expected.items())
