"""The consumer groups that read the topics, and the progress of each; which generations of the pool there are. Changes
nothing."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient

from claw_r1.eventlog.kafka.admin import begin_offsets, end_offsets
from claw_r1.eventlog.kafka.librdkafka import admin_config, error_of, request_failure
from claw_r1.eventlog.kafka.reader import committed_offsets
from claw_r1.eventlog.records import Place
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import FACTS

GROUPS_MAX = 200
"""Consumer groups of the broker whose offsets are asked for."""


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """A group that committed an offset of the catalogue's topics."""

    name: str
    state: str
    """The state in Kafka's terms: stable, empty, …"""
    members: int
    offsets: Mapping[Place, int]
    """The offsets where the group goes on."""


def consumer_groups(settings: LogSettings) -> list[ConsumerGroup]:
    """In order of their names. Raises BrokerUnreachable, LogError."""
    admin = AdminClient(admin_config(settings))
    topics = {settings.catalogue().name(topic) for topic in settings.catalogue()}
    timeout_s = settings.connect_timeout_s
    try:
        listed = admin.list_consumer_groups(request_timeout=timeout_s).result().valid
        names = own_first((group.group_id for group in listed), settings.prefix)
        queries = [[ConsumerGroupTopicPartitions(name)] for name in names]
        futures = [admin.list_consumer_group_offsets(query, request_timeout=timeout_s) for query in queries]
        offsets = [next(iter(each.values())).result().topic_partitions for each in futures]
        own = {
            name: {(at.topic, at.partition): at.offset for at in places if at.topic in topics and at.offset >= 0}
            for name, places in zip(names, offsets, strict=True)
        }
        own = {name: places for name, places in own.items() if places}
        described = admin.describe_consumer_groups(list(own), request_timeout=timeout_s) if own else {}
        states = {name: future.result() for name, future in described.items()}
    except KafkaException as raised:
        raise request_failure(error_of(raised), settings) from raised
    return [
        ConsumerGroup(name, states[name].state.name.lower(), len(states[name].members), places)
        for name, places in own.items()
    ]


def own_first(names: Iterable[str], prefix: str) -> list[str]:
    """Returns at most `GROUPS_MAX` groups in order: those of our own programs, then others, of which a broker may have any number."""
    names = sorted(names, key=lambda name: (not name.startswith(f"{prefix}."), name))
    return sorted(names[:GROUPS_MAX])


def facts_behind(settings: LogSettings) -> int:
    """Returns how many facts the streams of this generation have not folded yet. Raises BrokerUnreachable, TopicMissing."""
    begins, ends = begin_offsets(settings, FACTS), end_offsets(settings, FACTS)
    numbers = sorted({number for _, number in ends})
    reached = committed_offsets(settings, settings.catalogue().streams_group, FACTS, numbers)
    return behind({place: (begins[place], end) for place, end in ends.items()}, reached)


def behind(spans: Mapping[Place, tuple[int, int]], reached: Mapping[Place, int | None]) -> int:
    """Returns how many records a reader has not reached. spans: begin and end."""
    return sum(max(0, end - max(begin, reached[at] or 0)) for at, (begin, end) in spans.items() if at in reached)
