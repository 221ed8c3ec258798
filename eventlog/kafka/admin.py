"""The topics of the catalogue on a broker: created, described, compared. Nothing here
changes or deletes a topic."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass

import structlog
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs forget to re-export them
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
    TopicMetadata,
)

from claw_r1.eventlog.errors import BrokerUnreachable, LogError, TopicMissing
from claw_r1.eventlog.kafka.acls import check_access
from claw_r1.eventlog.kafka.librdkafka import (
    admin_config,
    cluster,
    consumer_config,
    error_of,
    patiently,
    request_failure,
)
from claw_r1.eventlog.kafka.offsets import found_topics, known_topics, offsets_of, places_of
from claw_r1.eventlog.records import Place
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import CALLS, Topic

METADATA_TIMEOUT_S = 90.0
"""How long a broker may take to take over the partitions of topics that it has just created."""
METADATA_POLL_S, PROGRESS_S = 0.05, 5.0
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A cluster that answered."""

    cluster_id: str
    brokers: tuple[str, ...]
    """host:port as advertised."""


@dataclass(frozen=True, slots=True)
class TopicSize:
    """The size of a topic of the catalogue on the broker, which every role may see."""

    name: str
    partitions: int
    replication: int
    begin_offsets: Mapping[int, int]
    end_offsets: Mapping[int, int]

    @property
    def records(self) -> int:
        """Offsets in use; transaction markers and compacted records count, so this is an upper bound."""
        return sum(end - self.begin_offsets[number] for number, end in self.end_offsets.items())


@dataclass(frozen=True, slots=True)
class TopicState(TopicSize):
    """A topic of the catalogue as it is on the broker, with its settings, which the operator alone may see."""

    config: Mapping[str, str]
    """The settings that the catalogue speaks about, with the broker's values."""
    min_insync: int
    """Replicas that must have a record before it is acknowledged."""


def check_broker(settings: LogSettings, timeout_s: float = 8) -> BrokerInfo:
    """Finds out which broker replies at `bootstrap_servers`. Raises BrokerUnreachable with one line that says what to
    do; AccessRefused."""
    metadata = cluster(settings, timeout_s)
    brokers = tuple(f"{broker.host}:{broker.port}" for broker in metadata.brokers.values())
    return BrokerInfo(metadata.cluster_id or "", brokers)


def broker_settings(settings: LogSettings) -> dict[str, str]:
    """The settings of one broker. Raises LogError."""
    brokers = cluster(settings, settings.connect_timeout_s).brokers
    name, admin = str(min(brokers)), AdminClient(admin_config(settings))
    return _configs(admin, settings, [name], ResourceType.BROKER)[name]


def create_topics(settings: LogSettings) -> list[str]:
    """Creates what the broker lacks of the catalogue and returns the names, once every partition has a leader.

    A topic that exists is left as it is (`diff_topics` compares). Raises BrokerUnreachable; LogError when refused.
    """
    catalogue = settings.catalogue()
    topics = {catalogue.name(topic): topic for topic in catalogue}
    existing = _found(settings, topics)
    new = [
        NewTopic(name, catalogue.partitions, catalogue.replication, config=catalogue.settings(topic))
        for name, topic in topics.items()
        if name not in existing
    ]
    admin = AdminClient(admin_config(settings))
    answers = admin.create_topics(new) if new else {}
    created = [each.topic for each in new if _created(each, answers[each.topic], settings)]
    _wait_for_leaders(settings, list(topics))
    return created


def with_topics(settings: LogSettings) -> LogSettings:
    """Creates what the broker lacks of the catalogue. Returns the settings, with the partitions that a prefix which was
    there has kept."""
    catalogue = settings.catalogue()
    if kept := [*_found(settings, [catalogue.name(topic) for topic in catalogue]).values()]:
        settings = settings.model_copy(update={"partitions": len(kept[0].partitions)})
    create_topics(settings)
    return settings


def topic_sizes(settings: LogSettings) -> list[TopicSize]:
    """The catalogue's topics that are on the broker, in the catalogue's order, for a user of any role."""
    catalogue = settings.catalogue()
    existing = _found(settings, [catalogue.name(topic) for topic in catalogue])
    topics = {catalogue.name(topic): topic for topic in catalogue if catalogue.name(topic) in existing}
    if not topics:
        return []
    begins, ends = _offsets(settings, list(topics.values()), OFFSET_BEGINNING, OFFSET_END)
    return [_size(existing[name], begins, ends) for name in topics]


def describe_topics(settings: LogSettings) -> list[TopicState]:
    """The same with their settings, for the operator's user. Raises AccessRefused for another role's."""
    sizes = topic_sizes(settings)
    if not sizes:
        return []
    catalogue, names = settings.catalogue(), [size.name for size in sizes]
    configs = _configs(AdminClient(admin_config(settings)), settings, names)
    return [_state(size, catalogue.settings(catalogue.topic(size.name)), configs[size.name]) for size in sizes]


def diff_topics(settings: LogSettings) -> list[str]:
    """One line for each difference between catalogue and broker; [] when there is none."""
    catalogue = settings.catalogue()
    states = {state.name: state for state in describe_topics(settings)}
    lines: list[str] = []
    for topic in catalogue:
        name = catalogue.name(topic)
        if name not in states:
            lines.append(f"{name}: missing; create it with `claw topics create`")
            continue
        state = states[name]
        expected = {
            "partitions": catalogue.partitions,
            "replication": catalogue.replication,
            **catalogue.settings(topic),
        }
        actual = {"partitions": state.partitions, "replication": state.replication, **state.config}
        lines += [
            f"{name}: {field} is {actual.get(field)}, the catalogue says {value}"
            for field, value in expected.items()
            if actual.get(field) != value
        ]
    return lines


def check_catalogue(settings: LogSettings, role: str) -> None:
    """Checks that the broker's topics are those of the settings, and open to a user of this role; a process asks before
    it reads or writes any.

    Another partition count would send a group's facts to one partition and look for them in another. Raises
    TopicMissing, AccessRefused, LogError (which names both counts), BrokerUnreachable.
    """
    check_access(settings, role)
    catalogue = settings.catalogue()
    names = [catalogue.name(topic) for topic in catalogue]
    with closing(Consumer(consumer_config(settings))) as consumer:
        topics = known_topics(consumer, settings, names)
    for name, topic in topics.items():
        if (count := len(topic.partitions)) != settings.partitions:
            raise LogError(
                f"{name} has {count} partitions, the settings say {settings.partitions}: "
                f"set CLAW_LOG_PARTITIONS={count} (or --partitions) or take another prefix; the count of one is never changed"
            )


def as_on_broker(settings: LogSettings) -> LogSettings:
    """With the partitions and replicas that the facts have there, whatever these settings say. Raises TopicMissing,
    BrokerUnreachable."""
    name = settings.catalogue().name(CALLS)
    if (topic := _found(settings, [name]).get(name)) is None:
        raise TopicMissing(name)
    replicas = len(next(iter(topic.partitions.values())).replicas)
    return settings.model_copy(update={"partitions": len(topic.partitions), "replication": replicas})


def topics_id(settings: LogSettings, topics: Sequence[Topic]) -> str:
    """The ids that the cluster gave these topics when they were made: others have other ones, whatever their names.
    Raises TopicMissing, LogError."""
    names = [settings.catalogue().name(topic) for topic in topics]
    admin = AdminClient(admin_config(settings))  # its answers end with it
    answers = admin.describe_topics(TopicCollection(names), request_timeout=settings.connect_timeout_s)
    try:
        return " ".join(str(answers[name].result().topic_id) for name in names)
    except KafkaException as raised:
        raise request_failure(error_of(raised), settings, names[0]) from raised


def end_offsets(settings: LogSettings, topics: Sequence[Topic]) -> dict[Place, int]:
    """For each partition the first offset that is not yet readable. Raises BrokerUnreachable, TopicMissing."""
    return _offsets(settings, topics, OFFSET_END)[0]


def begin_offsets(settings: LogSettings, topics: Sequence[Topic]) -> dict[Place, int]:
    """For each partition the first offset that retention left. Raises BrokerUnreachable, TopicMissing."""
    return _offsets(settings, topics, OFFSET_BEGINNING)[0]


def offsets_at(settings: LogSettings, topics: Sequence[Topic], timestamp_ms: int) -> dict[Place, int]:
    """For each partition the first offset whose record is not older than `timestamp_ms`, else its end.

    Record times are those of the producers' clocks: a time is a way to find an offset and never a position itself.
    Raises BrokerUnreachable, TopicMissing.
    """
    ends, offsets = _offsets(settings, topics, OFFSET_END, max(0, timestamp_ms))
    return {place: ends[place] if at < 0 else min(at, ends[place]) for place, at in offsets.items()}


def delete_records(settings: LogSettings, before: Mapping[Place, int]) -> None:
    """Removes the records below the given offset of each partition, for good. An operator's act.

    Raises LogError for a compacted topic: Kafka refuses it.
    """
    admin = AdminClient(admin_config(settings))
    try:
        for future in admin.delete_records(
            [TopicPartition(*place, offset) for place, offset in before.items()]
        ).values():
            future.result()
    except KafkaException as raised:
        raise request_failure(error_of(raised), settings) from raised


def _found(settings: LogSettings, names: Iterable[str]) -> dict[str, TopicMetadata]:
    with closing(Consumer(consumer_config(settings))) as consumer:
        return found_topics(consumer, settings, names)


def _created(topic: NewTopic, first: Future[None], settings: LogSettings) -> bool:
    """False when somebody else created it meanwhile. first: an answer on its way; after a failure that heals a new client asks,
    which knows nothing of a broker that was fenced when the former began."""

    def answers() -> Iterator[Future[None]]:
        yield first
        while True:
            admin = AdminClient(admin_config(settings))  # held here until the next: what it was asked ends with it
            yield admin.create_topics([topic])[topic.topic]

    coming = answers()

    def ask() -> bool:
        answer = next(coming)
        try:
            answer.result()
        except KafkaException as raised:
            if error_of(raised).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return answer is not first
        return True

    return patiently(ask, settings, topic.topic, timeout_s=METADATA_TIMEOUT_S)


def _wait_for_leaders(settings: LogSettings, names: Sequence[str]) -> None:
    """A stream worker that starts before the metadata is there gets an empty assignment and idles for a minute. On a slow
    machine a fresh broker takes a while to take a hundred partitions over, which a line says."""
    begun_s, said_s = time.monotonic(), 0.0
    while time.monotonic() < begun_s + METADATA_TIMEOUT_S:
        topics = _found(settings, names)
        if all(_has_leaders(topics.get(name)) for name in names):
            with suppress(BrokerUnreachable, TopicMissing):  # waits until the leaders know it, too
                _offsets(settings, list(settings.catalogue()), OFFSET_END, timeout_s=PROGRESS_S)
                return
        elapsed_s = time.monotonic() - begun_s
        if elapsed_s >= said_s + PROGRESS_S:
            said_s = elapsed_s
            log.info("log_topics_awaited", seconds=round(elapsed_s), seconds_max=METADATA_TIMEOUT_S)
        time.sleep(METADATA_POLL_S)
    raise BrokerUnreachable(
        f"the topics are created, and after {METADATA_TIMEOUT_S:.0f} s the broker is still taking over their partitions: start again"
    )


def _has_leaders(topic: TopicMetadata | None) -> bool:
    return topic is not None and bool(topic.partitions) and all(at.leader >= 0 for at in topic.partitions.values())


def _offsets(
    settings: LogSettings, topics: Sequence[Topic], *which: int, timeout_s: float | None = None
) -> list[dict[Place, int]]:
    """One answer for each of `which`: OFFSET_BEGINNING, OFFSET_END, or a time in milliseconds. timeout_s: as `offsets_of`."""
    with closing(Consumer(consumer_config(settings))) as consumer:
        names = [settings.catalogue().name(topic) for topic in topics]
        places = places_of(consumer, settings, names, None)
        return [offsets_of(consumer, settings, places, each, timeout_s=timeout_s) for each in which]


def _configs(
    admin: AdminClient, settings: LogSettings, names: Sequence[str], kind: ResourceType = ResourceType.TOPIC
) -> dict[str, dict[str, str]]:
    resources = [ConfigResource(kind, name) for name in names]
    timeout_s = settings.connect_timeout_s
    futures = admin.describe_configs(resources, request_timeout=timeout_s)
    try:
        return {
            resource.name: {key: str(entry.value) for key, entry in future.result().items()}
            for resource, future in futures.items()
        }
    except KafkaException as raised:
        raise request_failure(error_of(raised), settings) from raised


def _size(metadata: TopicMetadata, begins: Mapping[Place, int], ends: Mapping[Place, int]) -> TopicSize:
    name, replication = str(metadata.topic), min(len(at.replicas) for at in metadata.partitions.values())
    kept = ({number: offsets[name, number] for number in sorted(metadata.partitions)} for offsets in (begins, ends))
    return TopicSize(name, len(metadata.partitions), replication, *kept)


def _state(size: TopicSize, kept: Mapping[str, str], config: Mapping[str, str]) -> TopicState:
    own = {key: config[key] for key in kept if key in config}
    insync = int(config.get("min.insync.replicas", 1))
    offsets = size.begin_offsets, size.end_offsets
    return TopicState(size.name, size.partitions, size.replication, *offsets, own, insync)
