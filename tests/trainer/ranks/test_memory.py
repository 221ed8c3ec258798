"""Bytes per rank by formula, against what tiny models really have and keep for their backward pass."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from claw_r1.trainer.learn.logprobs import LOGITS_MAX
from claw_r1.trainer.ranks.memory import LOGITS, ModelShape, bytes_per_rank, shape_of

TOKENS = 256
SIZES = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}
KINDS = {"qwen": (Qwen3ForCausalLM, Qwen3Config), "llama": (LlamaForCausalLM, LlamaConfig)}


@pytest.fixture(params=sorted(KINDS))
def model(request, tmp_path):
    kind, config = KINDS[request.param]
    made = kind(config(**SIZES, tie_word_embeddings=request.param == "qwen"))
    made.save_pretrained(tmp_path)
    return made.train(), tmp_path


def kept_bytes(model):
    """Of all tensors that a forward pass keeps for the backward pass, each storage once, weights aside."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage, tensor
        return tensor

    ids = torch.zeros((1, TOKENS), dtype=torch.long)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model.base_model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False)
    return sum(storage.nbytes() for storage, _ in kept.values())


@pytest.mark.parametrize("checkpointing", [False, True], ids=["kept", "checkpointed"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_activations_are_what_the_backward_pass_needs(model, precision, checkpointing):
    """Within a fifth, for Llama's and Qwen's layers, in both precisions; checkpointed, one layer is computed again."""
    module, directory = model
    if precision == "bf16":
        module = module.to(torch.bfloat16)
    layer = 0
    if checkpointing:
        layer = kept_bytes(module) // SIZES["num_hidden_layers"]
        module.gradient_checkpointing_enable()
    parts = bytes_per_rank(
        shape_of(directory),
        device="cpu",
        precision=precision,
        stage=0,
        ranks=1,
        tokens=TOKENS,
        checkpointing=checkpointing,
    )
    assert parts["activations"] == pytest.approx(kept_bytes(module) + layer, rel=0.2)


def test_parameters_are_counted_once(model):
    """From the headers of the files; a tied head is none of its own."""
    module, directory = model
    assert shape_of(directory).parameters == sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("precision", "stage", "weights", "gradients", "optimizer"),
    [
        ("fp32", 0, 4, 4, 8),
        ("fp32", 1, 4, 4, 4),
        ("fp32", 2, 4, 2, 4),
        ("fp32", 3, 2, 2, 4),
        ("bf16", 1, 2, 6, 6),
        ("bf16", 2, 2, 3, 6),
        ("bf16", 3, 1, 3, 6),
    ],
)
def test_stages_share_among_ranks(model, precision, stage, weights, gradients, optimizer):
    """Bytes per parameter on each of two ranks."""
    shape = shape_of(model[1])
    parts = bytes_per_rank(shape, device="cpu", precision=precision, stage=stage, ranks=2, tokens=0)
    n = shape.parameters
    assert (parts["weights"], parts["gradients"], parts["optimizer"]) == (n * weights, n * gradients, n * optimizer)
    assert parts["total"] == n * (weights + gradients + optimizer) + parts["head"]


def test_the_head_is_counted_as_it_computes():
    """In parts of so many logits."""
    assert LOGITS == LOGITS_MAX


def test_a_config_in_other_words_has_no_estimate(model):
    """No figure rather than a wrong one."""
    _, directory = model
    (directory / "config.json").write_text('{"model_type": "other", "n_embd": 8}')
    assert shape_of(directory) is None


def test_what_lies_in_host_memory_is_in_no_total():
    """It is shown beside it, as many bytes as it would take on the device."""
    shape = ModelShape(**dict.fromkeys(ModelShape.__dataclass_fields__, 1))
    how = {"device": "cuda", "precision": "bf16", "stage": 2, "ranks": 1, "tokens": 8}
    kept, offloaded = (bytes_per_rank(shape, **how, offload=offload) for offload in ("none", "cpu"))
    assert offloaded["optimizer_on_host"] == kept["optimizer"]
    assert offloaded["total"] == kept["total"] - kept["optimizer"]
    assert "optimizer" not in offloaded
