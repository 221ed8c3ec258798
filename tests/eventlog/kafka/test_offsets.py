"""Questions about offsets to a client that has just lost its broker."""

from types import SimpleNamespace

import pytest
from confluent_kafka import OFFSET_END, KafkaError, KafkaException, TopicPartition

from claw_r1.eventlog.errors import TopicMissing
from claw_r1.eventlog.kafka.offsets import offsets_of
from claw_r1.eventlog.settings import LogSettings


class ForgetfulClient:
    """Knows of no partition until it is asked for the topic, as librdkafka once all connections are gone; `topics` are there."""

    def __init__(self, *topics: str) -> None:
        self._topics, self._knows = topics, False

    def offsets_for_times(self, queries: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        if not self._knows:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION, "Failed to get offsets"))
        return [TopicPartition(each.topic, each.partition, 7) for each in queries]

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
        self._knows = topic in self._topics
        there = {topic: SimpleNamespace(error=None, partitions={0: None})} if self._knows else {}
        return SimpleNamespace(topics=there, brokers={1: None})


def test_a_client_that_forgot_the_leaders_asks_again() -> None:
    """The topic is there: a broker that was away for a moment is waited for."""
    assert offsets_of(ForgetfulClient("t"), LogSettings(), [("t", 0)], OFFSET_END) == {("t", 0): 7}  # type: ignore[arg-type]  # a stand-in


def test_a_topic_that_is_gone_is_said_at_once() -> None:
    with pytest.raises(TopicMissing, match="topic t "):
        offsets_of(ForgetfulClient(), LogSettings(), [("t", 0)], OFFSET_END)  # type: ignore[arg-type]  # a stand-in
