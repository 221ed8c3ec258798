"""A version of several ranks has the names on disk, too, where ZeRO 3 builds the model in parts."""

import pytest
import torch
from safetensors.torch import load_file

from tests.trainer import incarnation
from tests.trainer.learn.test_tensor_names import made

pytestmark = [pytest.mark.process, pytest.mark.slow]


def look(learner, path):
    torch.save({name: tensor.clone() for name, tensor in learner.named_tensors()}, path)


@pytest.mark.parametrize("family", ["qwen3-moe", "gpt-neox"])
def test_partitioned_weights_have_the_names_on_disk(walk, tmp_path, family):
    """Experts that are stacked in memory, and cut into parts, come out one by one as the directory holds them."""
    model_dir = made(tmp_path / "model", family)
    settings = incarnation.settings(tmp_path / "out", model_dir, zero_stage=3, device="cpu", ranks=2)
    walk(look, settings, tmp_path / "weights")
    weights, expected = torch.load(tmp_path / "weights"), load_file(model_dir / "model.safetensors")
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], tensor) for name, tensor in expected.items())
