"""The configuration of every Kafka client of ours, and the meaning of librdkafka's errors. Settings of librdkafka stand
in this file and nowhere else.
"""

import base64
import contextlib
import json
import re
import time
from collections.abc import Callable
from typing import Any, TypeVar

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import ClusterMetadata  # type: ignore[attr-defined]  # its stubs forget to re-export it

from claw_r1.eventlog.errors import (
    AccessRefused,
    BrokerUnreachable,
    Fenced,
    LogError,
    NotAcknowledged,
    RecordTooLarge,
    TopicMissing,
)
from claw_r1.eventlog.records import Record
from claw_r1.eventlog.security import SecretsWatch
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import LARGEST_RECORD_BYTES

log = structlog.get_logger()

T = TypeVar("T")
KafkaConfig = dict[str, Any]  # librdkafka takes strings, numbers, booleans and callables
COMPRESSION_LEVEL = 1
"""The level of zstd: packs token ids as well as its default of 3, in half the time (`bench.datapool --only
storage`)."""
TRANSACTION_LINGER_MS = 100
"""Every commit flushes, which sends at once; until then the rows of a transaction gather to few large requests."""
SESSION_TIMEOUT_MS, HEARTBEAT_MS = 10_000, 1_000
"""After the first without a sign of life a member of a group counts as dead, and others
take its partitions over."""
SILENCE_MS = 10_000
"""A broker that is silent for so long after a request counts as lost, and the leaders of its partitions are looked up again: well
before a transaction's time is over."""
FRAME_BYTES = 64 << 10  # room for batch headers around the largest record
FENCES = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
UNREACHABLE = (
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._DESTROY_BROKER,  # it left the cluster while the request waited for it
)
UNKNOWN_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
REFUSALS = (KafkaError._SSL, KafkaError._AUTHENTICATION)
FORBIDDEN = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)
"""The user may not do this: an ACL is missing (`claw topics acls`)."""
MOVING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError._WAIT_COORD,  # nobody to ask where it is, either: a broker that hung
)
"""Partitions, or the coordinator of a group, are between two brokers, or their only one is starting or was fenced for a moment.
confluent-kafka calls some of these retriable only within transactions."""
RETRY_S = 0.05
TOKEN_LIFE_S = 300.0
"""How long a token that does not say when it ends is used."""
REFUSAL_TIMEOUT_S, REQUEST_S = 3.0, 0.5
GATHERED_BYTES = 1 << 20
"""The bytes at which a fetch that gathers is answered before its time."""


def _common(settings: LogSettings) -> KafkaConfig:
    return {
        "bootstrap.servers": settings.bootstrap_servers,
        "message.max.bytes": LARGEST_RECORD_BYTES,
        "logger": _Logger(),  # librdkafka prints to stderr otherwise
        "error_cb": _on_client_error,
        # librdkafka waits half of this between any two connections, and makes one to the bootstrap address and one to the broker.
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 1000,
        "socket.timeout.ms": SILENCE_MS,
        "allow.auto.create.topics": False,
        **_access(settings),
        **settings.client_config,
    }


def _access(settings: LogSettings) -> KafkaConfig:
    """Returns the proofs that the client gives and asks for. Raises AccessRefused."""
    config: KafkaConfig = {"security.protocol": settings.security_protocol}
    if pem := settings.pem():
        config |= zip(("ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem"), pem.texts(), strict=True)
    if settings.security_protocol.startswith("SASL"):
        config["sasl.mechanism"] = settings.security_mechanism
        if settings.security_username:
            config |= {"sasl.username": settings.security_username, "sasl.password": settings.secret()}
        else:
            config["oauth_cb"] = lambda _: token_of(settings)
    return {name: value for name, value in config.items() if value}


class Password:
    """Refreshes the password of a client that must not be made again, since that would fence its successor. Its certificate
    stays the one of its start: a connection outlives that, and where none is left the program ends and is started again."""

    def __init__(self, settings: LogSettings) -> None:
        """Raises AccessRefused."""
        self._settings, self._watch = settings, SecretsWatch(settings)

    def refresh(self, client: Producer) -> None:
        """Gives a changed password to the client for its next connection."""
        if self._watch.changed() and self._settings.security_username:
            client.set_sasl_credentials(self._settings.security_username, self._settings.secret())


def token_of(settings: LogSettings) -> tuple[str, float]:
    """A token of OAUTHBEARER and when it ends, seconds since 1970. Raises AccessRefused."""
    token = settings.secret()
    try:
        claims = token.split(".")[1]
        return token, float(json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"])
    except (LookupError, TypeError, ValueError):  # no JWT, or one without an end
        return token, time.time() + TOKEN_LIFE_S


class _Logger:
    """The logger for librdkafka's own lines. They repeat what comes back as errors, so they
    are for debugging only."""

    def log(self, level: int, template: str, *args: object) -> None:
        log.debug("librdkafka", severity=level, line=template % args)


def _on_client_error(error: KafkaError) -> None:
    """Errors of no particular request; librdkafka goes on by itself unless the error is fatal."""
    if error.fatal():
        log.error("log_client_fatal", code=error.name(), error=error.str())
    elif error.code() == KafkaError._ALL_BROKERS_DOWN:
        log.warning("log_unreachable", error=error.str())
    else:
        log.debug("log_client_error", code=error.name(), error=error.str())


def producer_config(settings: LogSettings) -> KafkaConfig:
    """At least once within a process's life without duplicates: acks=all and idempotent, murmur2."""
    return {
        **{key: value for key, value in _common(settings).items() if key != "allow.auto.create.topics"},
        "acks": "all",
        "enable.idempotence": True,
        "partitioner": "murmur2_random",  # librdkafka's default agrees with Java and Faust on 3 % of the keys
        "linger.ms": settings.linger_ms,
        "compression.type": settings.compression,
        "compression.level": COMPRESSION_LEVEL,
        "message.timeout.ms": settings.ack_timeout_ms,
        # A topic that is not in the metadata for this long does not exist.
        "topic.metadata.propagation.max.ms": min(2000, settings.ack_timeout_ms),
    }


def transactional_config(settings: LogSettings, transactional_id: str, timeout_ms: int) -> KafkaConfig:
    return {
        **producer_config(settings),
        "transactional.id": transactional_id,
        "transaction.timeout.ms": timeout_ms,
        # A record must not give up before its transaction does: an abort and a replay cost more than waiting.
        "message.timeout.ms": timeout_ms,
        "linger.ms": TRANSACTION_LINGER_MS,
    }


def consumer_config(settings: LogSettings, *, group_id: str | None = None, gather_ms: int = 0) -> KafkaConfig:
    """Manual assignment, committed records only; a position that the log does not hold is an error, never a jump.

    group_id: None for a reader that commits nothing; librdkafka asks for the coordinator of its group all the same.
    gather_ms: how long the broker gathers records for one answer; 0: each is sent at once.
    """
    largest = LARGEST_RECORD_BYTES + FRAME_BYTES
    return {
        **_common(settings),
        "group.id": group_id or settings.catalogue().readers_group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": gather_ms or settings.fetch_wait_ms,
        "fetch.min.bytes": GATHERED_BYTES if gather_ms else 1,
        "max.partition.fetch.bytes": largest,
        "receive.message.max.bytes": 100 << 20,
        "queued.max.messages.kbytes": 16 << 10,
    }


def member_config(settings: LogSettings, group_id: str, work_timeout_s: float) -> KafkaConfig:
    """A member of a group. `range` gives partition n of every topic to the same member, so facts of one key meet."""
    work_timeout_ms = int(work_timeout_s * 1000)
    return {
        **consumer_config(settings, group_id=group_id),
        "partition.assignment.strategy": "range",
        "max.poll.interval.ms": work_timeout_ms,
        "session.timeout.ms": min(SESSION_TIMEOUT_MS, work_timeout_ms),
        "heartbeat.interval.ms": HEARTBEAT_MS,
    }


def lookup_config(settings: LogSettings) -> KafkaConfig:
    """A reader that jumps: it fetches little ahead, since most of that would be thrown away at the next jump."""
    return {
        **consumer_config(settings),
        "fetch.wait.max.ms": 10,  # a fetch that finds nothing would hold up the partitions assigned next
        "max.partition.fetch.bytes": 256 << 10,  # a larger record comes all the same, alone
        "queued.min.messages": 1000,
        "queued.max.messages.kbytes": 4 << 10,
        "fetch.queue.backoff.ms": 5,
    }


def admin_config(settings: LogSettings) -> KafkaConfig:
    return {
        key: value
        for key, value in _common(settings).items()
        if key not in ("allow.auto.create.topics", "message.max.bytes")
    }


def error_of(raised: KafkaException) -> KafkaError:
    """The KafkaError inside an exception."""
    error: KafkaError = raised.args[0]
    return error


def delivery_failure(error: KafkaError, topic: str) -> LogError:
    """Returns the error that a failed delivery means. Everything that a retry may cure is NotAcknowledged."""
    if error.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE):
        return RecordTooLarge(f"a record for {topic} is larger than {LARGEST_RECORD_BYTES} bytes")
    if error.code() in UNKNOWN_TOPIC:
        return TopicMissing(topic)
    if error.code() in FENCES:
        return Fenced(f"{topic}: {error.str()}")
    if error.code() in FORBIDDEN:
        return forbidden(error, f"topic {topic}")
    return NotAcknowledged(f"{topic}: {error.name()}: {error.str()}")


def heals(error: KafkaError) -> bool:
    """Returns whether the same request may succeed soon without anybody's doing; so may one for topics while all brokers are fenced
    for a moment, which Kafka answers with the code of too few brokers."""
    fenced = error.code() == KafkaError.INVALID_REPLICATION_FACTOR and "fenced" in error.str()
    return bool(error.retriable()) or error.code() in MOVING or fenced


def patiently(request: Callable[[], T], settings: LogSettings, topic: str = "", *, timeout_s: float | None = None) -> T:
    """The answer to a request; errors that heal, and a broker that is lost, whose part another may take over, are waited out, for
    `connect_timeout_s` where no time is given.

    Raises what `request_failure` says.
    """
    deadline_s = time.monotonic() + (settings.connect_timeout_s if timeout_s is None else timeout_s)
    while True:
        try:
            return request()
        except KafkaException as raised:
            error = error_of(raised)
            away = error.code() in UNREACHABLE
            if not (away or heals(error)) or time.monotonic() > deadline_s:
                raise request_failure(error, settings, topic) from raised
        time.sleep(RETRY_S)


def request_failure(error: KafkaError, settings: LogSettings, topic: str = "") -> LogError:
    """Returns the error that a failed request means to a reader or to administration."""
    if error.code() in (*UNREACHABLE, *REFUSALS):
        return unreachable(settings)
    if error.code() in FORBIDDEN:
        return forbidden(error, topic or "the cluster")
    if error.code() in MOVING:
        return BrokerUnreachable(
            f"the broker at {settings.bootstrap_servers} is still taking over its partitions ({error.name()}"
            f"{f' of {topic}' if topic else ''}): it heals by itself, try again in a moment"
        )
    if error.code() in (*UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION):
        return TopicMissing(topic or "(unnamed)")
    return LogError(f"{topic or 'log'}: {error.name()}: {error.str()}")


def forbidden(error: KafkaError, what: str) -> AccessRefused:
    """Returns the error of a request that no access list allows. what: the
    resource; a reader's error does not say which group it speaks of."""
    if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED and not what.startswith("group"):
        what = "its consumer group"
    return AccessRefused(
        f"this client's user may not use {what} ({error.name()}): `claw topics acls` says what it needs"
    )


def unreachable(settings: LogSettings) -> LogError:
    """Returns the error of a broker that does not answer: AccessRefused with the reason where it, or we, refused."""
    if settings.secured:
        try:
            cluster(settings, REFUSAL_TIMEOUT_S)
        except LogError as error:
            return error
    return _away(settings)


def _away(settings: LogSettings) -> BrokerUnreachable:
    return BrokerUnreachable(
        f"no Kafka broker answers at {settings.bootstrap_servers}: "
        "start one (`claw broker`) or set KAFKA_BOOTSTRAP_SERVERS"
    )


def cluster(settings: LogSettings, timeout_s: float) -> ClusterMetadata:
    """Returns what the broker says of itself and its topics. Raises
    BrokerUnreachable; AccessRefused at once where it lets nobody in.

    A client's requests only time out, whatever its connections met: so this one is asked between short requests.
    """
    reasons: list[str] = []

    def hear(error: KafkaError) -> None:
        # A session that was dropped while hands were shaken goes by the same codes, and is no answer.
        if error.code() in REFUSALS and not re.search("transport (failure|error)", error.str()):
            reasons.append(error.str())

    client = Producer({**admin_config(settings), "error_cb": hear})
    deadline = time.monotonic() + timeout_s
    while not reasons and (left_s := deadline - time.monotonic()) > 0:
        with contextlib.suppress(KafkaException):
            metadata: ClusterMetadata = client.list_topics(timeout=min(REQUEST_S, left_s))
            return metadata
        client.poll(0)
    if not reasons:
        raise _away(settings)
    complaint = re.sub(r"^\S+://\S+: |( due to invalid credentials with .*)? \(after .*\)$", "", reasons[0])
    reason = settings.tls_refusal(settings.bootstrap_servers) or complaint
    raise AccessRefused(f"no access to Kafka at {settings.bootstrap_servers}: {reason}")


def fetched(consumer: Consumer, timeout_s: float, messages_max: int) -> list[Message]:
    """Returns the messages that have arrived, errors included; waits for the first message only."""
    first = consumer.poll(timeout_s)
    if first is None:
        return []
    return [first, *(consumer.consume(messages_max - 1, 0) if messages_max > 1 else ())]


def record_of(message: Message) -> Record:
    """A consumed message without error as a Record."""
    return Record(
        topic=str(message.topic()),
        partition=int(message.partition() or 0),
        offset=int(message.offset() or 0),
        timestamp_ms=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        headers=headers_of(message),
    )


def headers_of(message: Message) -> tuple[tuple[str, bytes], ...]:
    """The headers of a consumed message; one without a value is empty."""
    pairs: list[tuple[str, str | bytes | None]] = list(message.headers() or ())  # type: ignore[arg-type]  # never a dict here
    return tuple((name, _bytes(value)) for name, value in pairs)


def _bytes(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""
