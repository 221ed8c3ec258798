"""ZeRO 3 builds a model in parts."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.trainer import incarnation
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
