"""One member of a Kafka consumer group.

Invariant: a member commits only for partitions that it holds. It may commit in `on_revoked` for what it gives up in
order; a partition that was taken from it, because it was silent for too long, is gone before `on_revoked` is called.
"""

import contextlib
import threading
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future

import structlog
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from claw_r1.eventlog.kafka.librdkafka import (
    UNREACHABLE,
    error_of,
    fetched,
    heals,
    member_config,
    patiently,
    record_of,
    request_failure,
)
from claw_r1.eventlog.kafka.offsets import OUT_OF_RANGE, out_of_range, places_of
from claw_r1.eventlog.protocols import OnRevoked
from claw_r1.eventlog.records import Place, Record
from claw_r1.eventlog.security import SecretsWatch
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import Topic

log = structlog.get_logger()

PUT_OUT = (
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.FENCED_INSTANCE_ID,
)
"""The group goes on without this member, or is about to share the partitions out again."""


class KafkaMembership:
    """Joins at the first `poll`, leaves at `close`. Belongs to one thread; partitions change
    hands within `poll` only."""

    def __init__(
        self,
        settings: LogSettings,
        topics: Sequence[Topic],
        group_id: str,
        *,
        on_revoked: OnRevoked,
        work_timeout_s: float,
    ) -> None:
        """work_timeout_s: who does not poll for so long is put out of the group. Raises BrokerUnreachable, TopicMissing."""
        self._settings = settings
        self._group_id = group_id
        self._on_revoked = on_revoked
        self._positions: dict[Place, int | None] = {}
        self._member_id = ""
        self._leaving: str | None = None
        """The member that leaves now. Asked for its id while it closes, librdkafka may never answer, and
        holds Python's lock."""
        self._secrets = SecretsWatch(settings)
        self._names = [settings.catalogue().name(topic) for topic in topics]
        self._work_timeout_s = work_timeout_s
        self._consumer = self._joining()

    def _joining(self) -> Consumer:
        """A client that joins at its first poll. Raises BrokerUnreachable, TopicMissing."""
        consumer = Consumer(member_config(self._settings, self._group_id, self._work_timeout_s))
        try:
            places_of(consumer, self._settings, self._names, None)  # a missing topic would only be waited for
            consumer.subscribe(self._names, on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lose)
        except BaseException:
            consumer.close()
            raise
        return consumer

    def poll(self, timeout_s: float, records_max: int) -> list[Record]:
        """Up to `records_max` records of the partitions that this member holds; [] when none came within `timeout_s`.

        Raises HistoryCut when retention removed records that the group has not read; BrokerUnreachable when partitions
        were assigned and the committed offsets cannot be had.
        """
        if self._secrets.changed():  # a client reads certificates when it is made: leave in order, and join again
            self._end(self._consumer)
            self._leaving, self._consumer = None, self._joining()
        accepted = [self._accept(message) for message in fetched(self._consumer, timeout_s, records_max)]
        return [record for record in accepted if record is not None]

    def places(self) -> Collection[Place]:
        """The partitions that this member holds since the last poll, also those that it has read nothing of."""
        return self._positions.keys()

    def positions(self) -> dict[Place, int]:
        """The offset at which each partition continues after the last poll, where it is known."""
        return {place: offset for place, offset in self._positions.items() if offset is not None}

    def commit(self, offsets: Mapping[Place, int]) -> bool:
        """Commits the offsets where the group continues, for the partitions that this member holds. False when the
        group refused, or did not answer: the records will be delivered again. Raises LogError for what is not to be
        expected.
        """
        held = [TopicPartition(*place, offset) for place, offset in offsets.items() if place in self._positions]
        if not held:
            return False
        member_id = self._consumer.memberid() if self._leaving is None else self._leaving
        if member_id != self._member_id:
            return self._refused("not a member any more")
        try:
            self._consumer.commit(offsets=held, asynchronous=False)
        except KafkaException as raised:
            error = error_of(raised)
            if heals(error) or error.code() in (*PUT_OUT, *UNREACHABLE):
                return self._refused(error.str())
            raise request_failure(error, self._settings, f"group {self._group_id}") from raised
        return True

    def close(self) -> None:
        """Gives up all partitions (`on_revoked` is called) and leaves the group. Idempotent.

        librdkafka may wait for ever in its close when partitions come or go meanwhile (its issues 4041 and 4884, open). Who does
        not poll for `work_timeout_s` is put out of the group anyway, so nobody waits longer: the process can end then.
        """
        self._end(self._consumer)

    def _end(self, consumer: Consumer) -> None:
        if self._leaving is None:
            self._leaving = consumer.memberid() or ""
        closed: Future[None] = Future()
        threading.Thread(target=_close, args=(consumer, closed), name="kafka-close", daemon=True).start()
        try:
            closed.result(self._work_timeout_s)
        except TimeoutError:
            if closed.done():  # of `on_revoked`
                raise
            log.warning("log_client_does_not_close", group=self._group_id, waited_s=self._work_timeout_s)

    def _assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """A group that never committed begins at the beginning: only an explicit offset says so."""
        if self._leaving is not None:  # in the middle of its joining: it gets partitions, and no answers any more
            return
        timeout_s = self._settings.connect_timeout_s
        starts: list[TopicPartition] = []
        if partitions:
            starts = patiently(
                lambda: consumer.committed(partitions, timeout=timeout_s), self._settings, f"group {self._group_id}"
            )
        for start in starts:
            start.offset = OFFSET_BEGINNING if start.offset == OFFSET_INVALID else start.offset
        self._member_id = consumer.memberid()
        self._positions = {(start.topic, start.partition): None for start in starts}
        consumer.assign(starts)
        log.info("log_partitions_assigned", group=self._group_id, partitions=len(starts))

    def _revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        places = _places(partitions)
        self._on_revoked(places)
        self._drop(places)

    def _lose(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        log.warning("log_partitions_lost", group=self._group_id, partitions=len(partitions))
        places = _places(partitions)
        self._drop(places)
        self._on_revoked(places)

    def _drop(self, places: Sequence[Place]) -> None:
        for place in places:
            self._positions.pop(place, None)

    def _refused(self, reason: str) -> bool:
        log.warning("log_commit_refused", group=self._group_id, reason=reason)
        return False

    def _accept(self, message: Message) -> Record | None:
        """Moves the position. None for an end-of-partition mark, errors that heal by themselves, and what is not held."""
        place = (str(message.topic()), int(message.partition() or 0))
        error = message.error()
        if error is None and place in self._positions:
            self._positions[place] = int(message.offset() or 0) + 1
            return record_of(message)
        if error is None:
            return None
        if error.code() == KafkaError._PARTITION_EOF and place in self._positions:
            self._positions[place] = int(message.offset() or 0)
        elif error.code() in OUT_OF_RANGE:
            raise out_of_range(self._consumer, self._settings, place, int(message.offset() or 0))
        elif not (heals(error) or error.code() in IGNORED):
            raise request_failure(error, self._settings, place[0])
        return None


IGNORED = (KafkaError._PARTITION_EOF, KafkaError._MAX_POLL_EXCEEDED, *PUT_OUT, *UNREACHABLE)


def _places(partitions: Sequence[TopicPartition]) -> list[Place]:
    return [(at.topic, at.partition) for at in partitions]


def _close(consumer: Consumer, closed: "Future[None]") -> None:
    try:
        with contextlib.suppress(RuntimeError):  # confluent's word for "closed already"
            consumer.close()
    except BaseException as error:  # noqa: BLE001  # of `on_revoked`: it is the caller's
        closed.set_exception(error)
    else:
        closed.set_result(None)
