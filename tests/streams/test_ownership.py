"""Which partitions a worker takes over."""

import pytest

from streams.errors import NotCopartitioned
from streams.ownership import assigned_numbers

TOPICS = ("claw.calls", "claw.rewards")


def test_a_worker_owns_the_numbers_that_it_has_of_every_topic():
    """Other topics of the assignment do not count; nothing assigned is nothing owned."""
    both = [(topic, number) for topic in TOPICS for number in (1, 3)]
    assert assigned_numbers([*both, ("other", 7)], TOPICS) == {1, 3}
    assert assigned_numbers([], TOPICS) == set()


def test_half_of_a_group_is_refused():
    """Calls without their rewards would be folded to something else than the pool says."""
    with pytest.raises(NotCopartitioned):
        assigned_numbers([("claw.calls", 1), ("claw.rewards", 2)], TOPICS)
