"""The savings of a trie: `python -m bench.trainer --only trees`.

Work: forward and backward of one group of 8 trajectories with 1,024 prompt tokens in common and 8 turns each of 32 sampled
and 16 other tokens, through a Qwen3 of 2 layers, width 512 (2,048 in the MLP) and 1,024 ids. `tree_ratio`: one row per
trajectory over the trie. CPU seconds of one thread; the sides take turns in one run, medians; both must come to the same loss.
"""

import random
from collections.abc import Sequence
from functools import partial

import torch

from bench.examples import example
from bench.medians import in_turns
from bench.models import Shape, build
from bench.report import Figures
from claw_r1.trainer.algorithms.losses import bound
from claw_r1.trainer.learn.attention import LayoutWish, layout_of
from claw_r1.trainer.learn.examples import Example
from claw_r1.trainer.learn.layouts import MicroBatch, lay_out, padded_rows
from claw_r1.trainer.learn.objective import Objective, summed
from claw_r1.trainer.learn.policy_model import PolicyModel

GROUP, PROMPT, TURNS, SAMPLED, OTHER = 8, 1024, 8, 32, 16
SHAPE = Shape(vocabulary=1024, layers=2, mlp_width=2048)
CPU = torch.device("cpu")
OBJECTIVE = Objective(loss=bound("ppo_clip", clip_low=0.2, clip_high=0.28))


def measure(repeats: int) -> Figures:
    """The ratios, and the tokens of each side. Raises ValueError when the losses of the sides differ."""
    torch.set_num_threads(1)
    trajectories = [_trajectory(member) for member in range(GROUP)]
    batches: dict[str, tuple[LayoutWish, list[MicroBatch]]] = {
        "tree": ("tree", list(lay_out(trajectories, 10**9, "tree").micro_batches(CPU))),
        "rows": ("rows", [padded_rows(trajectories, CPU)]),
    }
    losses: dict[str, float] = {}

    def step(name: str, policy: PolicyModel) -> None:
        losses[name] = _loss(policy, batches[name][1])

    seconds = in_turns({name: partial(step, name, _policy(layout)) for name, (layout, _) in batches.items()}, repeats)
    if abs(losses["tree"] - losses["rows"]) > 1e-5:
        raise ValueError(f"the sides come to different losses: {losses}")
    return {
        "tree_ratio": seconds["rows"] / seconds["tree"],
        **{f"{name}_tokens": sum(batch.ids.numel() for batch in side) for name, (_, side) in batches.items()},
    }


def _policy(layout: LayoutWish) -> PolicyModel:
    model = build(SHAPE)
    layout_of(model, layout, CPU)
    return PolicyModel(model)


def _loss(policy: PolicyModel, batches: Sequence[MicroBatch]) -> float:
    total = 0.0
    policy.zero_grad()
    for batch in batches:
        tokens = batch.tokens
        scores = policy(batch.ids, batch.positions, batch.attention, tokens.at, tokens.ids, tokens.temperatures)
        loss = summed(OBJECTIVE.losses(tokens, scores), tokens)
        loss.backward()  # type: ignore[no-untyped-call]  # of torch
        total += loss.item()
    return total


def _trajectory(member: int) -> Example:
    prompt, own = random.Random(0), random.Random(member + 1)
    ids = [prompt.randrange(SHAPE.vocabulary) for _ in range(PROMPT)]
    ids += [own.randrange(SHAPE.vocabulary) for _ in range(TURNS * (SAMPLED + OTHER))]
    turns = [range(start, start + SAMPLED) for start in range(PROMPT, len(ids), SAMPLED + OTHER)]
    return _row(ids, [at for turn in turns for at in turn], member)


def _row(ids: Sequence[int], at: Sequence[int], member: int) -> Example:
    return example(ids, at, (-1.0) ** member, -7.0, member=member, scale=1 / (GROUP * TURNS * SAMPLED))
