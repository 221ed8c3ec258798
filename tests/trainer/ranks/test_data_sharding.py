"""What each rank computes."""

import random

import numpy as np
import pytest

from claw_r1.trainer.learn.layouts import lay_out
from claw_r1.trainer.ranks.data_sharding import Share, dealt
from tests.trainer.examples import example


def batch(seed, groups=6, members=4):
    """Groups of unequal length whose members have their prompt in common."""
    dice = random.Random(seed)
    examples = []
    for group in range(groups):
        prompt = [dice.randrange(30) for _ in range(dice.randint(5, 40))]
        for _ in range(members):
            response = [dice.randrange(30) for _ in range(dice.randint(1, 30))]
            examples.append(example(prompt, response, index=group))
    return examples


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("wish", ["rows", "tree"])
def test_each_example_is_computed_once(wish, ranks):
    """Whole, by one rank; all ranks have equally many parts, and say the same sum of tokens."""
    for seed in range(5):
        examples = batch(seed)
        layouts = [lay_out(examples, 100, wish, Share(rank, ranks)) for rank in range(ranks)]
        own = [id(each) for layout in layouts for part in layout.parts[: layout.own] for each in part]
        assert sorted(own) == sorted(map(id, examples))
        assert len({len(layout.parts) for layout in layouts}) == 1
        assert len({layout.tokens_computed for layout in layouts}) == 1
        padding = [each for layout in layouts for part in layout.parts[layout.own :] for each in part]
        assert all(each.scale.sum() == 0 for each in padding)


def test_a_tree_is_dealt_by_groups():
    """Two ranks compute no more tokens than one does, where there is a group for each."""
    examples = batch(1)
    alone = lay_out(examples, 10_000, "tree").tokens_computed
    together = lay_out(examples, 10_000, "tree", Share(0, 2)).tokens_computed
    assert together <= alone + 2  # but for what two groups happen to begin with


def test_the_longest_go_first():
    """Nobody has more than 4/3 of what would be even, where examples are many."""
    dice = random.Random(0)
    units = [[example([1] * dice.randint(1, 60), [2])] for _ in range(64)]
    costs = [len(each) for (each,) in units]
    loads = [sum(map(len, share)) for share in dealt(units, costs, 3)]
    assert max(loads) <= 4 / 3 * np.mean(loads)
    assert max(loads) - min(loads) <= 4
