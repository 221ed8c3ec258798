"""What heals by itself is waited out: a broker that starts, or was fenced for seconds, ends no program, and is not misnamed."""

from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from claw_r1.eventlog.errors import BrokerUnreachable, LogError, TopicMissing
from claw_r1.eventlog.kafka import admin
from claw_r1.eventlog.kafka.librdkafka import MOVING, UNREACHABLE, heals, patiently
from claw_r1.eventlog.kafka.offsets import known_topics
from claw_r1.eventlog.settings import LogSettings
from tests.broker import new_log

SETTINGS = LogSettings(connect_timeout_s=10)
HURRIED = LogSettings(connect_timeout_s=0.01)


class Fickle:
    """A request that fails with these codes, one after the other, and then succeeds."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)

    def __call__(self) -> str:
        if self.codes:
            raise KafkaException(KafkaError(self.codes.pop(0)))
        return "answer"


class Lister:
    """A client whose topics have these errors in turn; the last answer stays."""

    def __init__(self, answers: Sequence[dict[str, int | None]], brokers: int = 1) -> None:
        self.answers, self.brokers = list(answers), range(brokers)
        self.asked: list[str] = []

    def list_topics(self, topic: str, timeout: float) -> Any:
        self.asked.append(topic)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        topics = {
            name: SimpleNamespace(error=None if code is None else KafkaError(code), partitions={0: None})
            for name, code in answer.items()
        }
        return SimpleNamespace(topics=topics, brokers=self.brokers)


@pytest.mark.parametrize("code", sorted({14, 15, 16, KafkaError._WAIT_COORD, *MOVING}))
def test_a_coordinator_or_leader_that_moves_is_asked_again(code: int) -> None:
    """confluent-kafka calls these retriable within transactions alone; a program that ended of them lost nothing but itself."""
    assert heals(KafkaError(code))
    assert patiently(Fickle(code, code), SETTINGS) == "answer"


@pytest.mark.parametrize("code", UNREACHABLE)
def test_where_a_broker_is_lost_the_others_are_asked(code: int) -> None:
    """One of three may be away when a process starts; where all are, that is said once the time is over."""
    assert patiently(Fickle(code, code), SETTINGS) == "answer"
    with pytest.raises(BrokerUnreachable, match="no Kafka broker answers"):
        patiently(Fickle(*[code] * 1000), HURRIED)


def test_what_does_not_heal_in_time_says_so_and_may_be_tried_again() -> None:
    """It is no missing topic and no broker that is away."""
    with pytest.raises(BrokerUnreachable, match=r"still taking over its partitions \(NOT_COORDINATOR of group g\)"):
        patiently(Fickle(*[KafkaError.NOT_COORDINATOR] * 1000), HURRIED, "group g")


def test_what_nobody_can_wait_out_ends_at_once() -> None:
    """A refusal is no matter of patience."""
    request = Fickle(KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(LogError, match="TOPIC_AUTHORIZATION_FAILED"):
        patiently(request, SETTINGS)
    assert len(request.codes) == 1


def test_only_an_unknown_topic_is_missing() -> None:
    """A topic without a leader for a moment is waited for: telling somebody to create it would be wrong."""
    recovers = Lister([{"a": KafkaError.LEADER_NOT_AVAILABLE}, {"a": KafkaError.REPLICA_NOT_AVAILABLE}, {"a": None}])
    assert list(known_topics(recovers, SETTINGS, ["a"])) == ["a"]
    with pytest.raises(BrokerUnreachable, match="LEADER_NOT_AVAILABLE"):
        known_topics(Lister([{"a": KafkaError.LEADER_NOT_AVAILABLE}]), HURRIED, ["a"])
    for answer in ({}, {"a": KafkaError.UNKNOWN_TOPIC_OR_PART}):
        with pytest.raises(TopicMissing, match="claw topics create"):
            known_topics(Lister([answer]), SETTINGS, ["a"])


def test_a_topic_that_one_broker_of_several_does_not_know_yet_is_waited_for() -> None:
    """Brokers learn of a new topic one after the other; a single one has it or not."""
    unknown = {"a": KafkaError.UNKNOWN_TOPIC_OR_PART}
    answers = [unknown, unknown, unknown, {"a": None}]
    assert list(known_topics(Lister(answers, brokers=3), SETTINGS, ["a"])) == ["a"]
    with pytest.raises(TopicMissing):
        known_topics(Lister(answers), SETTINGS, ["a"])


def test_topics_are_asked_about_by_name() -> None:
    """A cluster's list of all topics may be thousands long, and each reader would fetch it."""
    lister = Lister([{"a": None, "b": None, "others": None}])
    assert list(known_topics(lister, SETTINGS, ["a", "b"])) == lister.asked == ["a", "b"]


@pytest.mark.kafka
def test_topics_are_made_when_each_leader_knows_of_its_own(broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On three brokers under load a leader said for longer than five seconds that it had no such topic; nobody is told to create it."""
    asked = admin._offsets
    answers = iter([TopicMissing("12 topics"), BrokerUnreachable("taking over")])

    def late(*arguments: Any, **options: Any) -> Any:
        if error := next(answers, None):
            raise error
        return asked(*arguments, **options)

    monkeypatch.setattr(admin, "_offsets", late)
    new_log(broker)
    assert next(answers, None) is None


class Refusing:
    """An administrator whose first requests for topics fail so; what comes after is asked of the broker."""

    def __init__(self, config: dict[str, Any], errors: list[KafkaError]) -> None:
        self.errors, self.broker = errors, AdminClient(config)

    def create_topics(self, new: list[NewTopic]) -> dict[str, Future[None]]:
        if not self.errors:
            return self.broker.create_topics(new)
        error, answers = self.errors.pop(0), {each.topic: Future[None]() for each in new}
        for answer in answers.values():
            answer.set_exception(KafkaException(error))
        return answers


@pytest.mark.kafka
@pytest.mark.parametrize(
    "error",
    [
        KafkaError(KafkaError._TIMED_OUT, "Failed while waiting for controller"),
        KafkaError(KafkaError.INVALID_REPLICATION_FACTOR, "All brokers are currently fenced"),
    ],
)
def test_topics_are_made_although_the_broker_was_fenced(
    broker: str, monkeypatch: pytest.MonkeyPatch, error: KafkaError
) -> None:
    """A controller that did not hear of its broker for three seconds refuses topics, and lists no broker; both end by themselves."""
    errors = [error, error]
    monkeypatch.setattr(admin, "AdminClient", lambda config: Refusing(config, errors))
    new_log(broker)
    assert errors == []


@pytest.mark.kafka
def test_more_copies_than_brokers_are_refused_at_once(broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code is that of a fenced broker, but nothing heals here."""
    asked: list[list[NewTopic]] = []

    class Counting(Refusing):
        def create_topics(self, new: list[NewTopic]) -> dict[str, Future[None]]:
            asked.append(new)
            return super().create_topics(new)

    monkeypatch.setattr(admin, "AdminClient", lambda config: Counting(config, []))
    with pytest.raises(LogError, match="INVALID_REPLICATION_FACTOR"):
        new_log(broker, replication=2)
    assert len(asked) == 1
