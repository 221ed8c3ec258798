"""The assignment of partitions to members: always calls and rewards of one number together.

Faust without tables takes round robin over all partitions of all topics, which separates the two topics whenever the
members do not divide the partition count; two owners of one partition would fence each other for ever. Ranges per topic
keep equal numbers together, because both topics have the same partition count and the same subscribers.
"""

from collections.abc import Mapping
from typing import Any

from aiokafka.coordinator.assignors.range import RangePartitionAssignor  # type: ignore[import-untyped]  # no stubs
from faust.assignor.partition_assignor import PartitionAssignor

Untyped = Any  # the types of aiokafka and Faust are untyped


class CopartitionedAssignor(PartitionAssignor):
    """Aiokafka's range assignor where Faust expects one of its own."""

    name = "claw-range"
    version = RangePartitionAssignor.version

    def assign(self, _cluster: Untyped, member_metadata: Mapping[str, Untyped]) -> Untyped:
        return RangePartitionAssignor.assign(_Partitions(self.app.conf.topic_partitions), member_metadata)

    def metadata(self, topics: Any) -> Untyped:  # a set of names
        return RangePartitionAssignor.metadata(topics)

    def on_assignment(self, assignment: Untyped) -> None:
        """Nothing to remember: without tables there are no standbys."""


class _Partitions:
    """The partitions of each topic, by the settings, which the worker
    compared with the broker's when it began.

    The client's own metadata lacks the topics for a moment after a broker with access lists has started: whoever led the group then
    gave nobody anything.
    """

    def __init__(self, count: int) -> None:
        self._count = count

    def partitions_for_topic(self, _topic: str) -> set[int]:
        return set(range(self._count))
