import random
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from bench import verbs
from bench.in_process import Context, Game, InProcessLoop, TaskDraw
from claw_r1.claw.demo.verbs.tiny_model import ensure
from claw_r1.trainer.learn.examples import LearnerBatch
from tests.caches import CACHE


@pytest.mark.slow
def test_a_conversation_that_goes_on_is_as_if_computed_anew() -> None:
    """Rows of other lengths, a row without news, a row forgotten: the logits after each are those of the whole row alone."""
    from transformers import AutoModelForCausalLM

    model = (
        AutoModelForCausalLM.from_pretrained(ensure(CACHE / "models", 0), dtype=torch.float32)
        .eval()
        .requires_grad_(False)
    )
    context = Context(model, 3)
    for rows, news in (
        ([0, 1, 2], [[65], [66, 67, 68], [70, 71]]),
        ([0, 1, 2], [[72], [], [73]]),
        ([1, 2], [[74, 75], [76]]),
    ):
        context.keep(rows)
        assert context.extended_by([[*ids, 1] for ids in context.ids])
        logits = context.extend(news)
        for ids, new, row in zip(context.ids, news, logits, strict=True):
            if new:
                torch.testing.assert_close(row, model(torch.tensor([ids])).logits[0, -1], atol=1e-4, rtol=1e-4)
    assert context.ids == [[66, 67, 68, 74, 75], [70, 71, 73, 76]]
    assert not context.extended_by([[66, 67, 68, 74, 75], [70, 71, 73]])


class Idle:
    """Learns nothing, and keeps what it should have learned from."""

    vocabulary = 262

    def __init__(self) -> None:
        self.batches: list[LearnerBatch] = []

    def train(self, batch: LearnerBatch) -> dict[str, float]:
        self.batches.append(batch)
        return {}

    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        return iter(())


def drawn_for(name: str, drawn: list[str]) -> TaskDraw:
    """Verbs under the name of an environment, which is noted with each task."""

    def task(dice: random.Random) -> Callable[[], Game]:
        drawn.append(name)
        return verbs.verbs(dice)

    return task


@pytest.mark.slow
def test_environments_have_their_shares_of_each_batch() -> None:
    """Three of five groups over two batches, whose rewards are told apart; the mean of all is that of both by their episodes."""
    idle, drawn = Idle(), list[str]()
    shares = {"groups_per_batch": 5, "group_size": 2, "environments": {"a": 0.5, "b": 0.5}}
    with verbs.settings(0, shares, model_dir=ensure(CACHE / "models", 0)) as settings:
        loop = InProcessLoop(settings, idle, {name: drawn_for(name, drawn) for name in "ab"})
        loop.run(2)
    assert "".join(drawn) == "aaabbaabbb"
    assert [len(batch.group_sizes) for batch in idle.batches] == [5, 5]
    assert {name: len(rewards) for name, rewards in loop.rewards_of.items()} == {"a": 2, "b": 2}
    first = (3 * loop.rewards_of["a"][0] + 2 * loop.rewards_of["b"][0]) / 5
    assert loop.rewards[0] == pytest.approx(first)
