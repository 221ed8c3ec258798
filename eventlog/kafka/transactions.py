"""Transactions with one owner: whoever opens a transactional id last is the only one who can write under it.

Invariant: when `commit` returns, all its records are in the log for good, and none of them twice. Committed readers see
them a moment later, because Kafka writes the transaction's markers after it answered; a record that somebody else
writes meanwhile may even stand between. `open` returns only after all markers of the id are written, so fence first,
then read. Fenced means that another owner took over; any other error leaves the outcome unknown, and the way out is a
new producer: its `open` ends what was pending, after which the log says what happened.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from claw_r1.eventlog.errors import Fenced, LogError, RecordTooLarge, TopicMissing
from claw_r1.eventlog.kafka.librdkafka import (
    FENCES,
    FORBIDDEN,
    Password,
    consumer_config,
    delivery_failure,
    error_of,
    forbidden,
    transactional_config,
    unreachable,
)
from claw_r1.eventlog.kafka.session import Delivery, position_of
from claw_r1.eventlog.records import Outgoing, Place, Position
from claw_r1.eventlog.settings import LogSettings

log = structlog.get_logger()

ATTEMPT_S = 10.0
ATTEMPT_MIN_S = 0.1
ROOM_POLL_S = 0.01
CLOSE_TIMEOUT_S = 1.0
NOTHING: Mapping[Place, int] = MappingProxyType({})


class TransactionalProducer:
    """Blocking; use it from one thread at a time. After any error of `commit` open a new one."""

    def __init__(
        self,
        settings: LogSettings,
        transactional_id: str,
        *,
        timeout_ms: int = 60_000,
        positions: bool = True,
        group_id: str = "",
    ) -> None:
        """positions: whether anybody asks where the records stand; without, only failures are reported, in half the time.
        group_id: a consumer group without members, whose offsets `commit` moves."""
        self._settings = settings
        self._positions = positions
        self._catalogue = settings.catalogue()
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._password = Password(settings)
        self._group_id = group_id
        self._group: object = None  # the client's own word for the group, which has no public type
        self._client: Producer | None = None
        self._lock = threading.Lock()

    def open(self) -> None:
        """Fences the former owner and ends its pending transaction. Raises Fenced or BrokerUnreachable."""
        config = transactional_config(self._settings, self._id, self._timeout_ms)
        client = Producer({**config, "delivery.report.only.error": not self._positions})
        try:
            self._until_done(client.init_transactions)
        except KafkaException as raised:
            raise self._broken(error_of(raised)) from raised
        if self._group_id:
            with contextlib.closing(Consumer(consumer_config(self._settings, group_id=self._group_id))) as member:
                self._group = member.consumer_group_metadata()
        self._client = client

    def commit(self, items: Sequence[Outgoing], consumed: Mapping[Place, int] = NOTHING) -> list[Position]:
        """One transaction with all `items`; their positions in the same order, or none. Neither items nor offsets: none.

        consumed: offsets at which the group continues from this transaction on.

        Retries and, where Kafka asks for it, aborts and replays the same items. Raises Fenced; RecordTooLarge or
        TopicMissing (nothing was written); BrokerUnreachable after `commit_timeout_s` (outcome unknown).
        """
        if self._client is None:
            raise RuntimeError("open() comes before commit()")
        if not (items or consumed):
            return []
        try:
            with self._lock:
                self._password.refresh(self._client)
                return self._commit(self._client, items, consumed)
        except KafkaException as raised:
            raise self._broken(error_of(raised)) from raised

    def close(self) -> None:
        """Ends the client and its threads. Idempotent."""
        with self._lock:
            client, self._client = self._client, None
            if client is not None:
                client.purge()
                with contextlib.suppress(KafkaException, SystemError):  # a fenced client says so once more
                    client.flush(CLOSE_TIMEOUT_S)

    def _commit(self, client: Producer, items: Sequence[Outgoing], consumed: Mapping[Place, int]) -> list[Position]:
        deadline = time.monotonic() + self._settings.commit_timeout_s
        while (positions := self._attempt(client, items, consumed)) is None:
            if time.monotonic() > deadline:
                raise unreachable(self._settings)
        return positions

    def _attempt(
        self, client: Producer, items: Sequence[Outgoing], consumed: Mapping[Place, int]
    ) -> list[Position] | None:
        """Positions when committed, None when aborted and worth a replay."""
        outcomes: list[Delivery | None] = [None] * len(items) if self._positions else []
        report: Callable[[Delivery], None] = outcomes.append
        try:
            client.begin_transaction()
            for index, item in enumerate(items):
                if self._positions:
                    report = partial(outcomes.__setitem__, index)
                self._produce(client, item, report)
            # Serves the delivery reports. On a fatal error it raises whatever its callbacks run into; commit tells why.
            with contextlib.suppress(KafkaException, SystemError):
                client.flush(self._timeout_ms / 1000)
            if consumed:
                self._move_group(client, consumed)
            self._until_done(client.commit_transaction)
        except KafkaException as raised:
            self._abort(client, error_of(raised))
            _raise_if_hopeless(outcomes)
            return None
        except (RecordTooLarge, TopicMissing):
            self._until_done(client.abort_transaction)
            raise
        return [_committed(outcome) for outcome in outcomes]

    def _move_group(self, client: Producer, consumed: Mapping[Place, int]) -> None:
        offsets = [TopicPartition(*place, offset) for place, offset in consumed.items()]
        self._until_done(lambda timeout_s: client.send_offsets_to_transaction(offsets, self._group, timeout_s))

    def _produce(self, client: Producer, item: Outgoing, report: Callable[[Delivery], None]) -> None:
        topic = self._catalogue.name(item.topic)

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            report(delivery_failure(error, topic) if error else position_of(message))

        while True:
            try:
                return client.produce(
                    topic,
                    value=item.value,
                    key=item.key,
                    partition=-1 if item.partition is None else item.partition,
                    headers=list(item.headers),
                    on_delivery=on_delivery,
                )
            except BufferError:
                client.poll(ROOM_POLL_S)
            except KafkaException as raised:
                failure = delivery_failure(error_of(raised), topic)
                if isinstance(failure, RecordTooLarge | TopicMissing):
                    raise failure from raised
                raise

    def _abort(self, client: Producer, error: KafkaError) -> None:
        """Ends a failed transaction so that it can be replayed. Raises what no replay can cure."""
        if error.code() == KafkaError._FATAL:
            error = _fatal_cause(client, error)
        if error.code() in FENCES:
            raise self._fenced(error)
        # _STATE: a record was refused because an earlier one had already put the transaction into its abortable state.
        if error.fatal() or not (error.txn_requires_abort() or error.code() == KafkaError._STATE):
            raise self._broken(error)
        log.warning("log_transaction_aborted", transactional_id=self._id, code=error.name(), error=error.str())
        self._until_done(client.abort_transaction)

    def _until_done(self, step: Callable[[float], None]) -> None:
        """Calls a step of the transaction protocol until it is through; such a step may be repeated as it is."""
        deadline = time.monotonic() + self._settings.commit_timeout_s
        while True:
            try:
                return step(min(ATTEMPT_S, max(deadline - time.monotonic(), ATTEMPT_MIN_S)))
            except KafkaException as raised:
                error = error_of(raised)
                if error.code() in FENCES:
                    raise self._fenced(error) from raised
                if not error.retriable():
                    raise
                if time.monotonic() > deadline:
                    raise unreachable(self._settings) from raised
                log.info("log_transaction_retried", transactional_id=self._id, code=error.name())

    def _broken(self, error: KafkaError) -> LogError:
        if error.code() in FORBIDDEN:
            return forbidden(error, f"the transactional id {self._id}, or a topic of its records")
        return LogError(f"transaction of {self._id}: {error.name()}: {error.str()}")

    def _fenced(self, error: KafkaError) -> Fenced:
        return Fenced(f"another owner took over {self._id} ({error.name()})")


def _fatal_cause(client: Producer, error: KafkaError) -> KafkaError:
    """`produce` on a dead client says only that it is dead; a step of the protocol says why."""
    try:
        client.abort_transaction(ATTEMPT_S)
    except KafkaException as raised:
        return error_of(raised)
    return error


def _committed(outcome: Delivery | None) -> Position:
    if not isinstance(outcome, Position):
        raise LogError(f"committed, but without a delivery report: {outcome}")
    return outcome


def _raise_if_hopeless(outcomes: Sequence[Delivery | None]) -> None:
    """A replay meets the same refusal when the broker will not have a record at all."""
    for outcome in outcomes:
        if isinstance(outcome, RecordTooLarge | TopicMissing):
            raise outcome
