"""Models whose logits are more than their head's output: scored as they score themselves, or refused."""

import pytest
import torch
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    FalconConfig,
    FalconForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    Llama4ForCausalLM,
    Llama4TextConfig,
    MixtralConfig,
    MixtralForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Starcoder2Config,
    Starcoder2ForCausalLM,
)

from claw_r1.trainer.errors import ModelInvalid
from claw_r1.trainer.learn.model import load, without_dropout
from claw_r1.trainer.learn.policy_model import PolicyModel

SIZES = {
    "vocab_size": 32,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "initializer_range": 0.3,
    "pad_token_id": 0,
}
MODELS = {
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {}),
    "gpt_neox": (GPTNeoXForCausalLM, GPTNeoXConfig, {}),
    "gemma2": (Gemma2ForCausalLM, Gemma2Config, {"final_logit_softcapping": 3.0}),
    "cohere": (CohereForCausalLM, CohereConfig, {"logit_scale": 0.25}),
    "granite": (GraniteForCausalLM, GraniteConfig, {"logits_scaling": 4.0}),
}


def model(name):
    torch.manual_seed(0)
    kind, config, changes = MODELS[name]
    return kind(config(**SIZES, **changes)).eval()


@pytest.mark.parametrize("name", MODELS)
def test_scores_are_those_of_the_models_own_logits(name):
    """Also where it scales or caps them; values and the gradients of all weights."""
    causal = model(name)
    ids = torch.tensor([[5, 7, 9, 11], [1, 2, 3, 4]])
    own = causal(input_ids=ids).logits.log_softmax(-1)[:, :-1].gather(-1, ids[:, 1:, None]).flatten()
    own.sum().backward()
    expected = [parameter.grad.clone() for parameter in causal.parameters()]
    causal.zero_grad()
    at = torch.tensor([0, 1, 2, 4, 5, 6])
    positions = torch.arange(4).expand(2, 4)
    scores = PolicyModel(causal)(ids, positions, None, at, ids[:, 1:].flatten(), torch.ones(6))
    torch.testing.assert_close(scores.logprobs, own, rtol=0, atol=1e-5)
    scores.logprobs.sum().backward()
    for parameter, gradient in zip(causal.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-4)


RATE = 0.1
NOISY = {
    "starcoder2": (
        Starcoder2ForCausalLM,
        Starcoder2Config,
        {"residual_dropout": RATE, "embedding_dropout": RATE, "attention_dropout": RATE, "sliding_window": None},
    ),
    "opt": (
        OPTForCausalLM,
        OPTConfig,
        {"dropout": RATE, "attention_dropout": RATE, "layerdrop": 0.5, "ffn_dim": 64, "word_embed_proj_dim": 32},
    ),
    "falcon": (FalconForCausalLM, FalconConfig, {"hidden_dropout": RATE, "attention_dropout": RATE}),
    "mixtral": (MixtralForCausalLM, MixtralConfig, {"router_jitter_noise": RATE, "num_local_experts": 2}),
}
"""Models whose noise of training has names of its own."""


def noisy(name):
    torch.manual_seed(0)
    kind, config, changes = NOISY[name]
    sizes = {name: size for name, size in SIZES.items() if name != "head_dim"}  # Falcon takes none
    return kind(config(**sizes, **changes)).train()


@pytest.mark.parametrize("name", NOISY)
def test_a_model_in_training_has_the_logits_that_it_samples_from(name):
    """Whatever its dropout is called, and wherever it is read: ratios compare the two, to the bit."""
    causal = noisy(name)
    ids = torch.arange(12)[None]
    before = causal.eval()(input_ids=ids).logits
    without_dropout(causal)
    PolicyModel(causal.train())
    assert causal.training
    assert torch.equal(causal(input_ids=ids).logits, before)


def test_a_model_with_a_noise_of_unknown_name_is_refused_in_one_line():
    """Else ratios and KL would be noise, without a word."""
    causal = noisy("starcoder2")
    with pytest.raises(ModelInvalid, match="Starcoder2ForCausalLM has other logits in training") as refused:
        PolicyModel(causal)
    assert "\n" not in str(refused.value)


def test_a_model_that_does_something_else_is_refused_in_one_line():
    """Never trained on logits that it does not sample from."""
    causal = model("qwen3")
    forward = causal.forward

    def squared(**inputs):
        output = forward(**inputs)
        output.logits = output.logits**2
        return output

    causal.forward = squared
    with pytest.raises(ModelInvalid, match="a model of type qwen3: its logits are not") as refused:
        PolicyModel(causal)
    assert "\n" not in str(refused.value)


def test_a_model_whose_trunk_has_no_name_is_refused_in_one_line(tmp_path):
    """Llama 4's text model would end in a traceback, at the first look at its hidden states."""
    Llama4ForCausalLM(Llama4TextConfig(**SIZES, num_local_experts=2, intermediate_size_mlp=64)).save_pretrained(
        tmp_path
    )
    with pytest.raises(ModelInvalid, match="Llama4ForCausalLM does not name its part before the head") as refused:
        load(tmp_path, "fp32")
    assert "\n" not in str(refused.value)
