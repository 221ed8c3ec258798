"""Which member gets which partitions."""

import pytest
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from claw_r1.eventlog.settings import LogSettings
from claw_r1.streams.faust_.app import faust_app
from claw_r1.streams.faust_.assignor import CopartitionedAssignor
from claw_r1.streams.settings import StreamsSettings

TOPICS = ["claw.calls", "claw.rewards"]


class Cluster:
    """What an assignor asks of aiokafka's metadata."""

    def __init__(self, partitions):
        self.partitions = partitions

    def partitions_for_topic(self, topic):
        return set(range(self.partitions))


def assigned(assignor, members, partitions):
    answer = assignor.assign(Cluster(partitions), {f"m{n}": assignor.metadata(TOPICS) for n in range(members)})
    return [dict(one.assignment) for one in answer.values()]


def assignor_of(partitions):
    return faust_app(StreamsSettings(), LogSettings(partitions=partitions)).assignor


@pytest.fixture(scope="module")
def assignor():
    return assignor_of(32)


@pytest.mark.parametrize("members", range(1, 10))
@pytest.mark.parametrize("partitions", [1, 8, 32])
def test_calls_and_rewards_of_one_number_go_to_one_member(members, partitions):
    """Two owners of one partition number would fence each other for ever."""
    shares = assigned(assignor_of(partitions), members, partitions)
    assert all(share.get(TOPICS[0], []) == share.get(TOPICS[1], []) for share in shares)
    assert sorted(number for share in shares for number in share.get(TOPICS[0], [])) == list(range(partitions))


def test_a_client_that_knows_no_topics_yet_gives_them_out_all_the_same(assignor):
    """A broker that has just started may leave topics out; everybody would get nothing, and nobody would ask again."""
    (share,) = assigned(assignor, 1, 0)
    assert share == {topic: list(range(32)) for topic in TOPICS}


def test_faust_asks_our_assignor(assignor):
    """The seam is a Faust setting; were it ignored, round robin would separate the topics, as it does here."""
    assert isinstance(assignor, CopartitionedAssignor)
    shares = assigned(RoundRobinPartitionAssignor, 3, 8)
    assert any(share[TOPICS[0]] != share[TOPICS[1]] for share in shares)
