"""Random batches in which examples begin alike."""

import random

import numpy as np

from claw_r1.trainer.learn.examples import Example


def forest(seed: int, *, examples: int = 12, longest: int = 24, vocabulary: int = 32) -> list[Example]:
    """Each example goes on from somewhere in an earlier one, in a response too; some are whole copies, some stand alone.

    Temperatures differ by example; behaviour, advantages, versions and scales by token.
    """
    dice = random.Random(seed)
    numbers = np.random.default_rng(seed)
    ids = [_ids(dice, dice.randint(2, longest), vocabulary)]
    while len(ids) < examples:
        source = dice.choice(ids)
        kept = dice.choice([0, len(source), dice.randint(1, len(source)), dice.randint(1, len(source))])
        more = 0 if kept == len(source) and dice.random() < 0.5 else dice.choice([1, 1, dice.randint(1, longest)])
        if kept + more >= 2:
            ids.append(source[:kept] + _ids(dice, more, vocabulary))
    return [_example(dice, numbers, index, each) for index, each in enumerate(ids)]


def _ids(dice: random.Random, n: int, vocabulary: int) -> list[int]:
    return [dice.randrange(vocabulary) for _ in range(n)]


def _example(dice: random.Random, numbers: np.random.Generator, index: int, ids: list[int]) -> Example:
    share = dice.choice([0.0, 0.3, 1.0])
    at = np.array(sorted({dice.randrange(1, len(ids)), *(t for t in range(1, len(ids)) if dice.random() < share)}))
    n = len(at)

    def drawn(scale: float, middle: float = 0.0) -> np.ndarray:
        return (middle + scale * numbers.standard_normal(n)).astype(np.float32)

    return Example(
        ids=np.array(ids, dtype=np.int32),
        at=at,
        behaviour=drawn(0.5, -3.4),
        temperatures=np.full(n, dice.choice([0.6, 1.0, 1.7]), dtype=np.float32),
        advantages=drawn(1.0),
        versions=numbers.integers(0, 3, n),
        responses=np.full(n, index, dtype=np.int64),
        trajectories=np.full(n, index, dtype=np.int64),
        rewards=drawn(0.1),
        weights=np.abs(numbers.standard_normal((n, 3))).astype(np.float32),
        scale=np.full(n, 0.01, dtype=np.float32),
        group=index // 4,
    )
