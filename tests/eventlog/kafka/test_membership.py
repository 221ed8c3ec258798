"""A member of a consumer group that leaves."""

from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.kafka.membership import KafkaMembership
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import CALLS
from tests.eventlog.samples import item
from tests.patience import until

pytestmark = pytest.mark.kafka


class AskedWhileItCloses:
    """A client that is asked for its member's id in its close: librdkafka may never answer then, and Python's lock is held meanwhile."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer, self.closes = consumer, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def memberid(self) -> str | None:
        assert not self.closes, "the process stands still for ever"
        return self._consumer.memberid()

    def close(self) -> None:
        self.closes = True
        self._consumer.close()


class LooksForItsCoordinator(AskedWhileItCloses):
    """A client whose broker hung: its first commits find nobody who could say where the group's coordinator is."""

    refusals = 2

    def commit(self, **arguments: Any) -> Any:
        if self.refusals:
            self.refusals -= 1
            raise KafkaException(KafkaError(KafkaError._WAIT_COORD))
        return self._consumer.commit(**arguments)


def test_whose_coordinator_is_looked_for_commits_later(log_settings: LogSettings) -> None:
    """A consumer ended of it, though its broker was back in a moment."""
    log = KafkaLog(log_settings)
    with closing(log.producer()) as producer:
        producer.produce(item("a", partition=0)).result(60)
    member = KafkaMembership(log_settings, [CALLS], "g", on_revoked=lambda _: None, work_timeout_s=60)
    until(lambda: member.poll(0.1, 10))
    member._consumer = LooksForItsCoordinator(member._consumer)  # type: ignore[assignment]  # a client in front of the client
    assert [member.commit(member.positions()) for _ in range(3)] == [False, False, True]
    member.close()


def test_whoever_leaves_commits_without_a_question_to_the_client(log_settings: LogSettings) -> None:
    """What was done is committed as its partitions are given up, in the middle of the close."""
    log = KafkaLog(log_settings)
    with closing(log.producer()) as producer:
        producer.produce(item("a", partition=0)).result(60)
    committed: list[bool] = []

    def give_up(places: Any) -> None:
        committed.append(member.commit(member.positions()))

    member = KafkaMembership(log_settings, [CALLS], "g", on_revoked=give_up, work_timeout_s=60)
    until(lambda: member.poll(0.1, 10))
    member._consumer = AskedWhileItCloses(member._consumer)  # type: ignore[assignment]  # a client in front of the client
    member.close()
    member.close()
    assert committed == [True]
    assert log.committed_offsets("g", [CALLS], [0]) == {(f"{log_settings.prefix}.{CALLS.name}", 0): 1}
