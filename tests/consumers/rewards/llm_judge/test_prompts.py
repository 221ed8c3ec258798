"""Who is compared with whom."""

from collections import Counter

import pytest

from claw_r1.consumers.rewards.llm_judge.prompts import questions
from claw_r1.consumers.rewards.llm_judge.rubrics import Rubric
from tests.consumers.rewards.llm_judge.subjects import group

RUBRIC = Rubric(answer="pair", scale=(0, 1), instructions="x")


@pytest.mark.parametrize(("opponents_max", "neighbours"), [(1, 2), (2, 2), (3, 2), (4, 4), (5, 4)])
def test_a_ring_has_as_many_neighbours_on_either_side(opponents_max: int, neighbours: int) -> None:
    """Of an odd number one less, and two at least; each of them is met both ways round."""
    members = group(*"abcdefgh")
    posed = questions(members, RUBRIC, opponents_max=opponents_max, both_ways=True, task=False)
    pairs = [one.pair for one in posed if one.pair is not None]
    assert len(pairs) == len({*pairs}) == 8 * neighbours
    for place in (0, 1):
        assert Counter(pair[place] for pair in pairs) == dict.fromkeys(range(8), neighbours)


@pytest.mark.parametrize("opponents_max", [3, 8])
def test_a_group_of_no_more_opponents_is_compared_as_a_whole(opponents_max: int) -> None:
    """An odd number is no less there: all pairs, both ways round."""
    posed = questions(group(*"abcd"), RUBRIC, opponents_max=opponents_max, both_ways=True, task=False)
    assert len({one.pair for one in posed}) == 4 * 3
