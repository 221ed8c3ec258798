"""Which partitions a worker takes over."""

import pytest

from claw_r1.eventlog.settings import LogSettings
from claw_r1.streams.errors import NotCopartitioned
from claw_r1.streams.metrics import StreamsMetrics
from claw_r1.streams.ownership import OwnedPartition, Ownership, assigned_numbers
from claw_r1.streams.partition.state import PartitionState
from claw_r1.streams.settings import StreamsSettings
from claw_r1.streams.standby import PoolCopy

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


class Owning(Ownership):
    """Takes partitions over without a broker, and remembers which it opened."""

    def __init__(self):
        super().__init__(LogSettings(partitions=1), StreamsSettings(), StreamsMetrics(), self._directly)
        self.opened = []

    async def _directly(self, function, *arguments):
        return function(*arguments)

    async def _open(self, numbers):
        assert self.at_work, "or the watchdog takes a long takeover for a stall"
        self.opened.append(numbers)
        self.partitions |= {
            number: OwnedPartition(PartitionState(number, 1), Closing(), PoolCopy()) for number in numbers
        }
        return []

    async def _heal_behind_group(self):
        pass


class Closing:
    """A producer that can be closed."""

    def close(self):
        pass


@pytest.mark.parametrize(("generation", "opened"), [(6, []), (7, [0]), (1, [0]), (5, [0])])
async def test_a_partition_is_kept_only_from_one_assignment_to_the_very_next(generation, opened):
    """After any other number, a group that began to count anew among them, somebody else may have owned it meanwhile."""
    ownership = Owning()
    await ownership.take_over({0}, 5)
    await ownership.take_over({0}, generation)
    assert (ownership.opened, ownership.at_work) == ([[0], opened], False)
