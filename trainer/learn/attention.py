"""Attention in which each token of a row sees its ancestors in a trie and itself, as an attention of transformers.

On CPU no mask is built: a branch is causal within itself, and the common part is one block that all branches see
whole. The parts are joined by their log-sum-exp, as flash attention joins the parts of one softmax (Dao et al., arXiv
2205.14135, section 3.1); the backward pass of each part takes the joint output and log-sum-exp. So work is limited
to pairs that see each other, and no key is copied. On CUDA it is FlexAttention with blocks from the ancestors.
Without a trie it is the causal attention of transformers.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from claw_r1.trainer.learn.trees import Block, Trie
from claw_r1.trainer.ranks.data_sharding import over_ranks
from claw_r1.trainer.ranks.zero3 import whole_when_called

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask
    from transformers import PreTrainedModel

log = logging.getLogger(__name__)

LayoutWish = Literal["auto", "rows", "tree"]
NAME = "claw_trie"
FLEX_BLOCK = 128
NOT_KNOWN = ("sliding_window", "s_aux", "softcap", "position_bias")  # what some models ask of their attention besides


@dataclass(slots=True)
class TrieAttention:
    """The attention's knowledge of a row. `mask`: on CUDA. `layers`: how many have used it."""

    branches: Sequence[tuple[int, int]]
    blocks: Sequence[Block]
    mask: "BlockMask | None" = None
    layers: int = 0

    @classmethod
    def of(cls, trie: Trie, device: torch.device) -> "TrieAttention":
        """For rows on `device`."""
        ends = torch.from_numpy(trie.ends)
        mask = block_mask(ends, device) if device.type == "cuda" else None
        return cls(trie.branches, trie.blocks, mask)


def layout_of(model: "PreTrainedModel", wish: LayoutWish, device: torch.device) -> LayoutWish:
    """Returns the layout that is possible of a wish. Where a tree can, this becomes the attention of the model, for
    rows as well."""
    if wish == "rows":
        return wish
    objection = _of_any_rank(_objection(model, device))
    if objection is None:
        from transformers import AttentionInterface

        AttentionInterface.register(NAME, attend)
        before = model.config._attn_implementation
        model.set_attn_implementation(NAME)
        objection = _of_any_rank(_tried(model))
        if objection is None:
            return wish
        model.set_attn_implementation(before)
    say(objection)
    return "rows"


def _of_any_rank(objection: str | None) -> str | None:
    """All ranks must lay out alike: where one cannot, none does."""
    return next(filter(None, over_ranks(objection)), None) if dist.is_initialized() else objection


@cache
def say(objection: str) -> None:
    """Once, though policy, critic and reference are three models."""
    log.warning("layout rows: no tree for this model, because %s", objection)


def _objection(model: "PreTrainedModel", device: torch.device) -> str | None:
    """Returns why the model keeps rows, where a trial of a few tokens would not show it."""
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    if kinds:
        return f"it has layers of {', '.join(sorted(kinds))}"
    if model._is_stateful:
        return "its layers scan a row in order"
    if not getattr(config, "layer_types", None) and getattr(config, "sliding_window", None):
        return "its attention looks through a window"
    if getattr(config, "index_topk", None):
        return "its attention looks at some of the keys only"
    if not (model._supports_attention_backend and model._supports_sdpa):
        return "its attention cannot be replaced in transformers"
    if device.type == "cuda" and find_spec("triton") is None:
        return "FlexAttention needs triton, which is not installed"
    return None


@torch.no_grad()
def _tried(model: "PreTrainedModel") -> str | None:
    """Returns why the model keeps rows, by a trial: 1 2 3 4 5 and 1 2 3 6 7 as rows and as a tree. All ranks call it."""
    device = model.device
    rows = torch.tensor([[1, 2, 3, 4, 5], [1, 2, 3, 6, 7]], device=device)
    mask = block_mask(torch.tensor([7, 7, 7, 5, 5, 7, 7]), device) if device.type == "cuda" else None
    trie = TrieAttention([(0, 5), (5, 7)], [Block(5, 7, 0, 3)], mask)
    row, positions = torch.tensor([[1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3, 4, 3, 4]], device=device)[:, None]
    try:
        with whole_when_called(model):
            expected = model.base_model(input_ids=rows, use_cache=False).last_hidden_state[1, 3:].float()
            in_tree = model.base_model(input_ids=row, position_ids=positions, use_cache=False, trie=trie)
    except (NotImplementedError, RuntimeError, TypeError) as error:
        return f"of {type(error).__name__}: {str(error).splitlines()[0]}"
    if not trie.layers:
        return "it does not pass on what its attention is given"
    distance = (in_tree.last_hidden_state[0, 5:].float() - expected).norm() / expected.norm()
    if distance > (1e-3 if model.dtype == torch.float32 else 0.2):
        return f"a tree gave it other numbers than rows did, by {float(distance):.3f}"
    return None


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    trie: TrieAttention | None = None,
    **others: Any,  # Any: whatever a model gives to its attention
) -> tuple[Tensor, None]:
    """query [rows, heads, n, d]; key, value [rows, key heads, n, d]; the answer is [rows, n, heads, d].

    Raises NotImplementedError for an attention that is more than a softmax over ancestors.
    """
    from transformers.integrations.flex_attention import flex_attention_forward
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if trie is None:
        rows: Tensor = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **others)[0]
        return rows, None
    beyond = [name for name in NOT_KNOWN if others.get(name) is not None]
    if beyond or attention_mask is not None:
        raise NotImplementedError(f"no tree for an attention with {' and '.join(beyond) or 'a mask of its own'}")
    trie.layers += 1
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if trie.mask is not None:
        return flex_attention_forward(module, query, key, value, trie.mask, scaling=scale)[0], None
    width = value.shape[-1]
    if width < query.shape[-1]:  # latent attention; the operator wants one width
        value = torch.nn.functional.pad(value, (0, query.shape[-1] - width))
    joined: Tensor = _Joined.apply(query, key, value, trie, scale)
    return joined[..., :width].transpose(1, 2), None


class _Joined(torch.autograd.Function):
    """Attention of one row on CPU, part by part."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, trie: TrieAttention, scale: float) -> Tensor:  # Any: torch's
        queries, keys, values = _by_key_head(q, k, v)
        out = torch.empty(queries.shape, dtype=torch.promote_types(q.dtype, torch.float32))
        lse = torch.empty(queries.shape[:-1], dtype=out.dtype)
        flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        for own, seen, causal in _parts(trie):
            part, weight = flash(queries[:, :, own], keys[:, :, seen], values[:, :, seen], 0.0, causal, scale=scale)
            if causal:
                out[:, :, own], lse[:, :, own] = part, weight
            else:
                before = lse[:, :, own]
                out[:, :, own].lerp_(part.to(out.dtype), torch.sigmoid(weight - before)[..., None])
                lse[:, :, own] = torch.logaddexp(before, weight)
        out = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.trie, ctx.scale = trie, scale
        return out.view(q.shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # Any: torch's
        q, k, v, out, lse = ctx.saved_tensors
        queries, keys, values = _by_key_head(q, k, v)
        gradient = gradient.reshape(queries.shape)
        dq, dk, dv = (torch.zeros(each.shape, dtype=lse.dtype) for each in (queries, k[0], v[0]))
        flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        for own, seen, causal in _parts(ctx.trie):
            to_queries, to_keys, to_values = flash(
                *(each[:, :, own] for each in (gradient, queries)),
                *(each[:, :, seen] for each in (keys, values)),
                *(each[:, :, own] for each in (out, lse)),
                0.0,
                causal,
                scale=ctx.scale,
            )
            dq[:, :, own] += to_queries
            dk[:, seen] += to_keys.sum(1)
            dv[:, seen] += to_values.sum(1)
        return dq.view(q.shape).to(q.dtype), dk[None].to(k.dtype), dv[None].to(v.dtype), None, None


def _parts(trie: TrieAttention) -> Iterator[tuple[slice, slice, bool]]:
    """Yields the tokens that see certain keys, and whether causally."""
    for branch in trie.branches:
        yield slice(*branch), slice(*branch), True
    for block in trie.blocks:
        yield slice(block.first, block.last), slice(block.keys_first, block.keys_last), False


def _by_key_head(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """All as [key heads, query heads of each, n, d], views: keys are not repeated in memory."""
    heads, per_key = k.shape[1], q.shape[1] // k.shape[1]
    queries = q[0].unflatten(0, (heads, per_key))
    keys, values = (each[0][:, None].expand(-1, per_key, -1, -1) for each in (k, v))
    return queries, keys, values


def block_mask(ends: Tensor, device: torch.device) -> "BlockMask":
    """The mask of FlexAttention, `k <= q < ends[k]`, without an n x n matrix.

    A block of keys is seen by queries up to the last end in it, and whole by those before the first end in it.
    """
    from torch.nn.attention.flex_attention import BlockMask

    n, ends = len(ends), ends.to(device)
    count = -(-n // FLEX_BLOCK)
    first = torch.arange(count, device=device) * FLEX_BLOCK
    last = (first + FLEX_BLOCK).clamp(max=n)
    padded = torch.cat([ends, ends[-1:].expand(count * FLEX_BLOCK - n)]).view(count, FLEX_BLOCK)
    below = first[:, None] > first[None]  # [blocks of queries, blocks of keys]
    whole = below & (last[:, None] <= padded.amin(1)[None])
    some = (below & (first[:, None] < padded.amax(1)[None]) & ~whole) | (first[:, None] == first[None])

    def sees(batch: Tensor, head: Tensor, q: Tensor, k: Tensor) -> Tensor:  # noqa: ARG001  # FlexAttention's signature
        return (k <= q) & (q < ends[k])

    return BlockMask.from_kv_blocks(
        *_table(some), *_table(whole), BLOCK_SIZE=FLEX_BLOCK, mask_mod=sees, seq_lengths=(n, n)
    )


def _table(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Returns how many blocks each block of queries has, and their numbers first in its line."""
    order = torch.argsort(blocks.int(), dim=-1, descending=True, stable=True).int()
    return blocks.sum(-1).int()[None, None], order[None, None].contiguous()
