"""The law of trees: what a tree gives is what one row per path gives."""

import logging

import pytest
import torch
import transformers
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from claw_r1.trainer.algorithms.losses import bound
from claw_r1.trainer.learn.attention import TrieAttention, attend, block_mask, layout_of, say
from claw_r1.trainer.learn.layouts import lay_out, packed_tree, padded_rows
from claw_r1.trainer.learn.metrics import TokenTotals
from claw_r1.trainer.learn.model import without_dropout
from claw_r1.trainer.learn.objective import Objective, summed
from claw_r1.trainer.learn.policy_model import PolicyModel
from claw_r1.trainer.learn.trees import in_order, trie
from tests.soak import in_soak
from tests.trainer.learn.forests import forest

CPU = torch.device("cpu")
OBJECTIVE = Objective(loss=bound("ppo_clip", clip_low=0.2, clip_high=0.28))
FAMILIES = {
    "Qwen3": {"head_dim": 16},
    "Llama": {},
    "GPTNeoX": {},
    "GPT2": {},
    "DeepseekV3": {
        "num_key_value_heads": 4,
        "q_lora_rank": None,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 12,
        "first_k_dense_replace": 2,
    },
    "Qwen3Moe": {"head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
}


def causal(family="Qwen3", **changes):
    """Two layers, four heads; weights so small that rounding in float32 stays below 1e-6."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(
        vocab_size=32,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=256,
        initializer_range=0.05,
        **{"num_key_value_heads": 2, **FAMILIES.get(family, {}), **changes},
    )
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    without_dropout(model)
    return model


def with_rows(examples, **model):
    """Of a row per example, with the attention of transformers."""
    return outcome(PolicyModel(causal(**model)), [padded_rows([each], CPU) for each in examples])


def with_tree(examples, **model):
    subject = causal(**model)
    assert layout_of(subject, "tree", CPU) == "tree"
    return outcome(PolicyModel(subject), [packed_tree(in_order(examples)[0], CPU)])


def outcome(model, batches, objective=OBJECTIVE):
    """Loss, metrics and gradients of all batches together."""
    model.zero_grad()
    totals, loss = TokenTotals(), 0.0
    for batch in batches:
        tokens = batch.tokens
        scores = model(batch.ids, batch.positions, batch.attention, tokens.at, tokens.ids, tokens.temperatures, True)
        losses = objective.losses(tokens, scores)
        totals.add(tokens, scores, losses, version=1)
        part = summed(losses, tokens)
        part.backward()
        loss += part.item()
    return loss, totals.means(), {name: each.grad.clone() for name, each in model.named_parameters()}


def assert_equal(actual, expected, tolerance=1e-6):
    assert actual[0] == pytest.approx(expected[0], rel=tolerance, abs=tolerance)
    assert actual[1] == pytest.approx(expected[1], rel=10 * tolerance, abs=2 * tolerance)
    largest = max(gradient.abs().max() for gradient in expected[2].values())
    for name, gradient in expected[2].items():
        assert (actual[2][name] - gradient).abs().max() <= tolerance * largest, name


@pytest.mark.parametrize("seed", [*range(6), *map(in_soak, range(6, 16))])
def test_a_tree_is_one_row_per_path(seed):
    """Loss, metrics and gradients agree to 1e-6 in float32, whatever is shared, forked or doubled."""
    examples = forest(seed)
    assert_equal(with_tree(examples), with_rows(examples))


@pytest.mark.parametrize("tokens_max", [30, 60])
def test_a_cut_tree_has_whole_responses(tokens_max):
    """Parts of a tree add up to rows for a loss over whole responses (GSPO) and for one over distributions (entropy)."""
    objective = Objective(loss=bound("gspo", clip_low=0.2, clip_high=0.28), entropy_bonus=0.1)
    examples = forest(2, examples=20)
    layout = lay_out(examples, tokens_max, "tree")
    assert len(layout.parts) > 1
    subject = causal()
    layout_of(subject, "tree", CPU)
    expected = outcome(PolicyModel(causal()), [padded_rows([each], CPU) for each in examples], objective)
    assert_equal(outcome(PolicyModel(subject), layout.micro_batches(CPU), objective), expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_with_full_attention_has_trees(family):
    """The trie reaches each layer, and the positions each embedding."""
    examples = forest(7, examples=20)
    assert_equal(with_tree(examples, family=family), with_rows(examples, family=family))


def test_a_tree_of_one_example_and_rows_are_untouched():
    """A group of one is a row, and rows under the attention of trees are the rows of transformers to the bit."""
    examples = forest(0, examples=1)
    assert_equal(with_tree(examples), with_rows(examples))
    subject = causal()
    layout_of(subject, "auto", CPU)
    rows = [padded_rows(forest(1), CPU)]
    ours, theirs = outcome(PolicyModel(subject), rows), outcome(PolicyModel(causal()), rows)
    assert ours[:2] == theirs[:2]
    assert all(torch.equal(ours[2][name], gradient) for name, gradient in theirs[2].items())


def test_layers_may_be_computed_again_in_backward():
    """Gradient checkpointing calls the attention once more, outside of the forward pass."""
    examples = forest(5)
    subject = causal().train()
    layout_of(subject, "tree", CPU)
    subject.gradient_checkpointing_enable()
    batch = packed_tree(in_order(examples)[0], CPU)
    actual = outcome(PolicyModel(subject), [batch])
    assert batch.attention.layers == 2 * subject.config.num_hidden_layers
    assert_equal(actual, with_rows(examples))


def test_bf16_is_as_near_as_rows_are():
    """Joining parts in float32 adds nothing that is seen beside the rounding of bf16 itself."""
    examples = forest(6)
    exact = with_rows(examples)[2]

    def distance(subject, batches):
        gradients = outcome(PolicyModel(subject.bfloat16()), batches)[2]
        return sum((gradients[name].float() - each).square().sum() for name, each in exact.items()).sqrt().item()

    subject = causal()
    layout_of(subject, "tree", CPU)
    of_rows = distance(causal(), [padded_rows([each], CPU) for each in examples])
    assert distance(subject, [packed_tree(in_order(examples)[0], CPU)]) < 1.5 * of_rows


@pytest.mark.parametrize("seed", range(4))
def test_the_parts_are_one_attention(seed):
    """On CPU they give what a dense mask gives, outputs and gradients; and so does FlexAttention, uncompiled, with its mask."""
    row = trie(in_order(forest(seed, examples=40))[0])
    n = len(row.ids)
    torch.manual_seed(seed)
    inputs = [torch.randn(1, heads, n, 16, requires_grad=True) for heads in (4, 2, 2)]
    ours = attend(torch.nn.Module(), *inputs, None, trie=TrieAttention.of(row, CPU))[0].transpose(1, 2)
    mask = block_mask(torch.from_numpy(row.ends), CPU)
    dense = mask.mask_mod(None, None, torch.arange(n)[:, None], torch.arange(n)[None])
    theirs = torch.nn.functional.scaled_dot_product_attention(*inputs, attn_mask=dense, enable_gqa=True)
    gradient = torch.randn_like(ours)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    for one, other in zip(*(torch.autograd.grad(each, inputs, gradient) for each in (ours, theirs)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=2e-6)
    with torch.no_grad():
        of_cuda = flex_attention(*(each.detach() for each in inputs), block_mask=mask, enable_gqa=True)
    torch.testing.assert_close(ours, of_cuda, rtol=1e-5, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(3))
def test_on_cuda_a_tree_is_one_row_per_path(seed):
    """FlexAttention compiled, forward and backward, a row of many blocks: against rows on the same device."""
    cuda = torch.device("cuda")
    examples = forest(seed, examples=40, longest=150)
    subject = causal(max_position_embeddings=4096).to(cuda)
    expected = outcome(PolicyModel(subject), [padded_rows([each], cuda) for each in examples])
    layout_of(subject, "tree", cuda)
    assert_equal(outcome(PolicyModel(subject), [packed_tree(in_order(examples)[0], cuda)]), expected, tolerance=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_the_blocks_of_cuda_are_those_of_the_mask(seed):
    """What is said of 128 x 128 blocks without looking at tokens is what their tokens say: seen, and seen whole."""
    ends = torch.from_numpy(trie(in_order(forest(seed, examples=40, longest=150))[0]).ends)
    subject = block_mask(ends, CPU)
    expected = create_block_mask(subject.mask_mod, None, None, len(ends), len(ends), device="cpu")
    assert len(ends) > 5 * 128
    assert len(ends) % 128
    for numbers, indices in (("kv_num_blocks", "kv_indices"), ("full_kv_num_blocks", "full_kv_indices")):
        for ours, theirs, n, m in zip(
            getattr(subject, indices)[0, 0],
            getattr(expected, indices)[0, 0],
            getattr(subject, numbers)[0, 0],
            getattr(expected, numbers)[0, 0],
            strict=True,
        ):
            assert sorted(ours[:n].tolist()) == sorted(theirs[:m].tolist())


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ({"family": "Mistral", "sliding_window": 4096}, "window"),
        ({"family": "Qwen2", "use_sliding_window": True, "max_window_layers": 1}, "sliding_attention"),
        ({"family": "Gemma2", "head_dim": 16}, "sliding_attention"),
        ({"family": "Rwkv"}, "in order"),
        ({"family": "Nemotron"}, "does not pass on"),
        ({"family": "Qwen3Next", "head_dim": 16, "num_experts": 2, "linear_num_value_heads": 4}, "linear_attention"),
    ],
)
def test_what_cannot_have_trees_keeps_rows_and_says_why(model, reason, caplog):
    """Layers that scan in order or look through a window: one line in the log, for a critic's model none more."""
    say.cache_clear()
    subject = causal(**model)
    before = subject.config._attn_implementation
    with caplog.at_level(logging.WARNING, "claw_r1.trainer.learn.attention"):
        assert layout_of(subject, "tree", CPU) == "rows"
        assert layout_of(subject, "auto", CPU) == "rows"
    assert [reason in record.getMessage() for record in caplog.records] == [True]
    assert subject.config._attn_implementation == before


def test_a_model_whose_numbers_a_tree_changes_keeps_rows(caplog):
    """A layer that looks at its neighbour in the row, of which no setting tells, is found out by trying."""
    say.cache_clear()
    subject = causal()
    subject.model.layers[1].mlp.register_forward_hook(lambda _module, _inputs, output: output + output.roll(1, dims=1))
    assert layout_of(subject, "auto", CPU) == "rows"
    assert "other numbers" in caplog.text
    assert subject.config._attn_implementation == "sdpa"


def test_more_than_a_softmax_is_refused():
    """An attention that asks for what we do not compute is an error, never another result."""
    row = TrieAttention.of(trie(in_order(forest(0))[0]), CPU)
    inputs = [torch.zeros(1, 2, 4, 8)] * 3
    with pytest.raises(NotImplementedError, match="softcap"):
        attend(torch.nn.Module(), *inputs, None, trie=row, softcap=30.0)


def test_a_model_that_drops_the_tree_is_an_error():
    """Its tokens would see each other across branches."""
    subject = causal()  # its attention was never replaced
    with pytest.raises(RuntimeError, match="layout: rows"):
        outcome(PolicyModel(subject), [packed_tree(in_order(forest(0))[0], CPU)])


def test_the_configuration_of_an_export_does_not_name_our_attention():
    """Whoever loads it has none of that name."""
    subject = causal()
    layout_of(subject, "auto", CPU)
    assert "claw" not in subject.config.to_json_string(use_diff=False)
