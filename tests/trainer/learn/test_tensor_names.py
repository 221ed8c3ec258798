"""What a version consists of is what transformers would write: names, shapes, dtypes, bytes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from claw_r1.trainer.config.lora import LoraSettings
from claw_r1.trainer.learn import model as models
from claw_r1.trainer.learn import tensor_names
from claw_r1.trainer.learn.engine import EngineSettings, TrainingEngine
from claw_r1.trainer.learn.tensor_names import CheckpointTensors
from claw_r1.weights.manifest import WeightsManifest, spec_of
from claw_r1.weights.snapshot import WeightsSnapshot
from tests.trainer.learn.tiny_engine import OBJECTIVE, batch
from tests.weights.tensors import read

pytestmark = pytest.mark.process

SIZES = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
}
GROUPED = {**SIZES, "num_key_value_heads": 1, "head_dim": 8}
EXPERTS = {**GROUPED, "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
FAMILIES = {
    "qwen3": ("qwen3", GROUPED),
    "qwen3-tied": ("qwen3", {**GROUPED, "tie_word_embeddings": True}),
    "llama": ("llama", GROUPED),
    "qwen3-moe": ("qwen3_moe", EXPERTS),
    "qwen3-moe-tied": ("qwen3_moe", {**EXPERTS, "tie_word_embeddings": True}),
    "mixtral": ("mixtral", {**GROUPED, "num_local_experts": 3}),
    "olmoe": ("olmoe", {**EXPERTS, "num_key_value_heads": 2}),
    "gpt-neox": ("gpt_neox", SIZES),
    "deepseek-v3": (  # has buffers that are saved
        "deepseek_v3",
        {
            **SIZES,
            "n_routed_experts": 4,
            "n_group": 2,
            "topk_group": 1,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 8,
            "first_k_dense_replace": 1,
            "q_lora_rank": 8,
            "kv_lora_rank": 8,
            "qk_rope_head_dim": 4,
            "qk_nope_head_dim": 4,
            "v_head_dim": 8,
        },
    ),
}
ON_DISK_ONLY = {
    "qwen3-moe": "model.layers.1.mlp.experts.2.gate_proj.weight",
    "mixtral": "model.layers.1.block_sparse_moe.experts.2.w3.weight",
    "gpt-neox": "embed_out.weight",
}


def made(directory, family, dtype=torch.float32):
    """A model directory of the family, as transformers writes it."""
    kind, fields = FAMILIES[family]
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **fields), dtype=dtype)
    model.save_pretrained(directory)
    return directory


def specs(tensors):
    return {name: spec_of(name, tensor) for name, tensor in tensors.items()}


@pytest.mark.parametrize(
    ("family", "precision"), [(family, ("fp32", "bf16")[n % 2]) for n, family in enumerate(FAMILIES)]
)
def test_the_tensors_are_those_of_save_pretrained(tmp_path, family, precision):
    """Of a model that was loaded: the same set of names, and under each the same shape, dtype and bytes."""
    model = models.load(made(tmp_path / "source", family), precision)
    model.save_pretrained(tmp_path / "saved")
    expected = load_file(tmp_path / "saved" / "model.safetensors")
    pairs = list(CheckpointTensors(model)())
    assert len(dict(pairs)) == len(pairs)
    assert specs(dict(pairs)) == specs(expected)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in pairs)
    assert ON_DISK_ONLY.get(family) in {None, *expected}


@pytest.mark.parametrize("family", ["qwen3-tied", "qwen3-moe", "mixtral", "gpt-neox"])
def test_manifest_export_and_source_agree(tmp_path, family):
    """An engine that has not trained exports the very model it began with, and the manifest names its tensors."""
    engine = TrainingEngine(made(tmp_path / "source", family), EngineSettings(learning_rate=0.0))
    manifest = WeightsManifest.of(engine.named_tensors())
    engine.export(WeightsSnapshot.of(engine.named_tensors()), tmp_path / "hf", {})
    source = load_file(tmp_path / "source" / "model.safetensors")
    exported = read(str(tmp_path / "hf"), manifest)  # raises unless names, shapes, dtypes and bytes agree
    assert specs(source) == specs(exported) == {spec.name: spec for spec in manifest.tensors}
    assert all(torch.equal(tensor, exported[name]) for name, tensor in source.items())
    AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
    assert WeightsManifest.of(engine.named_tensors()) == manifest


def test_partitioned_parameters_give_the_same_version(tmp_path, monkeypatch):
    """ZeRO 3 in buckets of a few tensors: order and digest are those of the whole model."""
    source = made(tmp_path / "source", "qwen3-moe")
    settings = EngineSettings(learning_rate=0.0)
    whole = WeightsManifest.of(TrainingEngine(source, settings).named_tensors())
    monkeypatch.setattr(tensor_names, "GATHERED_BYTES_MAX", 4096)
    assert WeightsManifest.of(TrainingEngine(source, replace(settings, zero_stage=3)).named_tensors()) == whole


def test_dense_models_keep_the_order_of_the_model(tmp_path):
    """Where nothing is renamed, a version's order, and so its digest, is that of the parameters."""
    model = models.load(made(tmp_path / "source", "llama"), "fp32")
    assert [name for name, _ in CheckpointTensors(model)()] == [name for name, _ in model.named_parameters()]


@pytest.mark.parametrize("family", ["llama", "qwen3-moe-tied", "mixtral", "gpt-neox", "deepseek-v3"])
def test_adapters_are_merged_where_they_act(tmp_path, family):
    """After a step on all linear layers transformers says of the export what the engine says with its adapters beside;
    the tensors are those of the source by name, shape and dtype; nothing but the layers' matrices is trained."""
    source = made(tmp_path / "source", family)
    engine = TrainingEngine(source, EngineSettings(learning_rate=1e-2, lora=LoraSettings(rank=2)))
    before = engine.logprobs(range(12))
    engine.train(batch(0), OBJECTIVE, version=0, seed=1)
    after = engine.logprobs(range(12))
    assert np.abs(after - before).max() > 1e-3
    engine.export(WeightsSnapshot.of(engine.named_tensors()), tmp_path / "hf", engine.adapter_tensors())
    exported = load_file(tmp_path / "hf" / "model.safetensors")
    assert specs(exported) == specs(load_file(source / "model.safetensors"))
    trained = [parameter for parameter in engine._causal.parameters() if parameter.requires_grad]
    assert len(trained) == len(engine.adapter_tensors())
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "hf", dtype=torch.float32)
    with torch.no_grad():
        logits = model(torch.arange(12)[None]).logits[0, :-1]
    expected = logits.log_softmax(-1).gather(-1, torch.arange(1, 12)[:, None])[:, 0]
    np.testing.assert_allclose(after, expected.numpy(), atol=1e-5)
