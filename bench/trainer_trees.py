"""The savings of a trie: `python -m bench.trainer --only trees`.

Work: forward and backward of one group of 8 trajectories with 1,024 prompt tokens in common and 8 turns each of 32 sampled
and 16 other tokens, through a Qwen3 of 2 layers, width 512 (2,048 in the MLP) and 1,024 ids. `tree_ratio`: one row per trajectory over
the trie. `call_rows_ratio`: one row per call, padded to the longest, over the trie. CPU seconds of one thread; the sides
take turns in one run (the calls, which take long, in every third turn), medians; all must come to the same loss.
"""

import random
import statistics
import time
from collections.abc import Sequence

import numpy as np
import torch

from bench.two_layers import two_layers
from claw_r1.trainer.algorithms.losses import bound
from claw_r1.trainer.learn.attention import LayoutWish, layout_of
from claw_r1.trainer.learn.examples import Example
from claw_r1.trainer.learn.layouts import MicroBatch, lay_out, padded_rows
from claw_r1.trainer.learn.objective import Objective, summed
from claw_r1.trainer.learn.policy_model import PolicyModel

GROUP, PROMPT, TURNS, SAMPLED, OTHER = 8, 1024, 8, 32, 16
VOCABULARY, WIDTH = 1024, 512
CPU = torch.device("cpu")
OBJECTIVE = Objective(loss=bound("ppo_clip", clip_low=0.2, clip_high=0.28))


def measure(repeats: int = 7) -> dict[str, float]:
    """The ratios, and what they are made of: CPU seconds and tokens of each side. Sets torch to one thread meanwhile.

    Raises ValueError when the losses of the sides differ.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _measured(repeats)
    finally:
        torch.set_num_threads(threads)


def _measured(repeats: int) -> dict[str, float]:
    trajectories = [_trajectory(member) for member in range(GROUP)]
    calls = [_calls(each) for each in trajectories]
    tree = lay_out(trajectories, 10**9, "tree")
    sides = {
        "tree": (_policy("tree"), list(tree.micro_batches(CPU))),
        "rows": (_policy("rows"), [padded_rows(trajectories, CPU)]),
        "call_rows": (_policy("rows"), [padded_rows(of_one, CPU) for of_one in calls]),
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    losses: dict[str, float] = {}
    for turn in range(repeats):
        for name, (policy, batches) in sides.items():
            if name == "call_rows" and turn % 3:
                continue
            began = time.process_time()
            losses[name] = _step(policy, batches)
            seconds[name].append(time.process_time() - began)
    if max(abs(loss - losses["rows"]) for loss in losses.values()) > 1e-5:
        raise ValueError(f"the sides come to different losses: {losses}")
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    return {
        "tree_ratio": medians["rows"] / medians["tree"],
        "call_rows_ratio": medians["call_rows"] / medians["tree"],
        **{f"{name}_cpu_s": each for name, each in medians.items()},
        **{f"{name}_tokens": float(sum(b.ids.numel() for b in batches)) for name, (_, batches) in sides.items()},
    }


def _policy(layout: LayoutWish) -> PolicyModel:
    model = two_layers(WIDTH, VOCABULARY)
    layout_of(model, layout, CPU)
    return PolicyModel(model)


def _step(policy: PolicyModel, batches: Sequence[MicroBatch]) -> float:
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
    ids = [prompt.randrange(VOCABULARY) for _ in range(PROMPT)]
    ids += [own.randrange(VOCABULARY) for _ in range(TURNS * (SAMPLED + OTHER))]
    turns = [range(start, start + SAMPLED) for start in range(PROMPT, len(ids), SAMPLED + OTHER)]
    return _example(ids, np.array([at for turn in turns for at in turn]), member)


def _calls(trajectory: Example) -> list[Example]:
    """The same sampled tokens, each after a prompt of its own row."""
    ends = range(PROMPT + SAMPLED, len(trajectory) + 1, SAMPLED + OTHER)
    ids = trajectory.ids.tolist()
    return [_example(ids[:end], np.arange(end - SAMPLED, end), int(trajectory.trajectories[0])) for end in ends]


def _example(ids: Sequence[int], at: np.ndarray, member: int) -> Example:
    n = len(at)

    def same(value: float) -> np.ndarray:
        return np.full(n, value, dtype=np.float32)

    return Example(
        ids=np.array(ids, dtype=np.int32),
        at=at,
        behaviour=same(-7.0),
        temperatures=same(1.0),
        advantages=same((-1.0) ** member),
        versions=np.zeros(n, dtype=np.int64),
        responses=np.full(n, member),
        trajectories=np.full(n, member),
        rewards=same(0.0),
        weights=np.tile(np.array([1, 0, 1], dtype=np.float32), (n, 1)),
        scale=same(1 / (GROUP * TURNS * SAMPLED)),
    )
