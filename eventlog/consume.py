"""The loop of a consumer: poll, work, publish, wait for the acknowledgements, commit.

Input: the records of some topics from the committed offsets of a consumer group; a group that never committed begins at
the beginning of the log. Output: the events that the work returns. Ordering: the records of a partition in order, one
after the other; partition n of every topic belongs to the same member, so the facts of one key meet.

Delivery: at least once. Offsets move only after the outputs of all records before them were acknowledged. A member that
is killed in between leaves records that the next one works on again: a consumer that derives its event ids from
the record writes the same events again, and they count once. A replay (another group) is the same for all records.

Hand-over: a member commits what it finished of a partition before it gives the partition up; a member that was put out
of its group commits nothing of what it lost. Memory: the records of one poll and their outputs.

Work may keep records in hand until `rest` is asked, once per poll: what it returns belongs to all of them, so that much can be
judged at once, or written together, before any offset moves.

Errors of the work: `Retryable` is tried again, with pauses, for `retry_s`, then ends the consumer; `RecordRefused` and
undecodable bytes put the record into the dead letters; any other exception is a bug and ends the consumer before the
record is committed.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar

import structlog

from claw_r1.eventlog.dead_letters import dead_letter
from claw_r1.eventlog.errors import RecordRefused, RecordTooLarge, Retryable
from claw_r1.eventlog.protocols import Log, OnAssigned, OnRevoked
from claw_r1.eventlog.records import Outgoing, Place, Position, Record
from claw_r1.runtime.stop_signals import stop_event
from claw_r1.schemas.errors import UndecodableRecord
from claw_r1.schemas.events import Event
from claw_r1.schemas.topics import Topic

log = structlog.get_logger()

POLL_S = 0.2
PAUSE_FIRST_S, PAUSE_MAX_S = 0.1, 5.0
OUTPUT_TOO_LARGE = "output_too_large"
Output = tuple[Topic, bytes, Event]
"""Topic, key, event. The key of a fact is its group's: `claw_r1.schemas.keys.group_key`."""
Work = Callable[[Record], Iterable[Output]]
Rest = Callable[[], Iterable[Output]]
"""The work on the records of one poll that is still to be done. Its errors are none of a record: `Retryable` is tried
again."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeLimits:
    """The limits of one poll, and the intervals between commits and retries."""

    records_max: int = 100
    """Records of one poll: they are committed together, so after a crash up to so many are worked on again."""
    commit_interval_s: float = 5.0
    """How often offsets are committed at most."""
    work_timeout_s: float = 300.0
    """How long the work on the records of one poll may take: after that the group gives the
    partitions to others."""
    retry_s: float = 120.0
    """How long one piece of work or one output is tried again before its error ends the consumer: at most, since no
    retry begins after half of `work_timeout_s`, while the member can still commit what it finished."""


LIMITS = ConsumeLimits()


class _StopRequested(Exception):
    """The consumer was asked to stop while it waited to try something again."""


def consume(
    log: Log,
    topics: Sequence[Topic],
    group_id: str,
    work: Work,
    *,
    rest: Rest = tuple,
    stop: threading.Event | None = None,
    on_assigned: OnAssigned = lambda _: None,
    on_revoked: OnRevoked = lambda _: None,
    limits: ConsumeLimits = LIMITS,
) -> None:
    """Work on all records of `topics`, as a member of the group, until `stop` is set; without it until SIGTERM or SIGINT.

    on_assigned: called after each poll, before the work on its records, with all partitions that this member holds.
    on_revoked: called with partitions that this member gave up; work that remembers records forgets them. The record in
    hand is finished at a stop, unless it waits to be tried again. Raises LogError, and whatever the work raises beside
    the module's errors.
    """
    loop = ConsumerLoop(
        log, topics, group_id, work, rest=rest, on_assigned=on_assigned, on_revoked=on_revoked, limits=limits
    )
    with closing(loop):
        loop.run(stop_event() if stop is None else stop)


@dataclass(frozen=True, slots=True)
class _Worked:
    """A record, and its outputs on their way."""

    record: Record
    outputs: list[tuple[Outgoing, Future[Position]]]


class ConsumerLoop:
    """Belongs to one thread."""

    def __init__(
        self,
        log: Log,
        topics: Sequence[Topic],
        group_id: str,
        work: Work,
        *,
        rest: Rest = tuple,
        on_assigned: OnAssigned = lambda _: None,
        on_revoked: OnRevoked = lambda _: None,
        limits: ConsumeLimits = LIMITS,
    ) -> None:
        """Raises BrokerUnreachable, TopicMissing."""
        self._group_id = group_id
        self._work = work
        self._rest = rest
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._limits = limits
        self._finished: dict[Place, int] = {}
        self._committed: dict[Place, int] = {}
        self._wait_logged = False
        self._retry_end = 0.0
        self._member = log.membership(
            topics, group_id, on_revoked=self._hand_over, work_timeout_s=limits.work_timeout_s
        )
        self._producer = log.producer()

    def run(self, stop: threading.Event) -> None:
        """Until `stop`; then everything finished is committed."""
        due = time.monotonic() + self._limits.commit_interval_s
        try:
            while not stop.is_set():
                if not self.step(stop) and not stop.is_set():
                    self._log_wait()
                if time.monotonic() >= due:
                    self.commit()
                    due = time.monotonic() + self._limits.commit_interval_s
        except _StopRequested:
            log.info("consumer_stopped_in_a_retry", group=self._group_id)
        self.commit()

    def step(self, stop: threading.Event) -> int:
        """One poll; returns when its outputs are in the log. The number of records that were worked on.

        An exception leaves the records before it finished: whoever closes the loop commits them.
        """
        records = self._member.poll(POLL_S, self._limits.records_max)
        positions = self._member.positions()
        self._on_assigned(self._member.places())
        self._retry_end = time.monotonic() + self._limits.work_timeout_s / 2
        worked: list[_Worked] = []
        try:
            for record in records:
                if stop.is_set():
                    break
                worked.append(_Worked(record, self._send(self._outputs(record, stop))))
        finally:
            owed = self._retried(lambda: [Outgoing.of(*output) for output in self._rest()], stop)
            for item, answer in self._send(owed):
                self._await(item, answer, stop)
            for each in worked:
                self._finish(each, stop)
        if len(worked) == len(records):
            self._finished |= positions
        return len(worked)

    def _log_wait(self) -> None:
        """Once: whoever watches a quiet consumer learns that it is not stuck."""
        if self._wait_logged or not self._member.positions():  # without a position no partition was read yet
            return
        self._wait_logged = True
        log.info(
            "consumer_waits",
            group=self._group_id,
            reason="the group has worked on every record that came so far",
            advice="new records are worked on as they come; a group of another name begins at the beginning",
        )

    def commit(self) -> None:
        """The group continues after everything finished so far."""
        self._commit(self._finished.keys())

    def close(self) -> None:
        """Leaves the group, after what is finished was committed. Idempotent."""
        self._member.close()
        self._producer.close()

    def _outputs(self, record: Record, stop: threading.Event) -> list[Outgoing]:
        try:
            return self._retried(lambda: [Outgoing.of(*output) for output in self._work(record)], stop)
        except (UndecodableRecord, RecordRefused) as poison:
            return [self._letter(record, poison.reason, str(poison))]

    def _send(self, items: Iterable[Outgoing]) -> list[tuple[Outgoing, Future[Position]]]:
        return [(item, self._producer.produce(item)) for item in items]

    def _finish(self, worked: _Worked, stop: threading.Event) -> None:
        """Returns once the log has every output of the record, or the dead letter of one that no log takes."""
        record = worked.record
        for item, answer in worked.outputs:
            try:
                self._await(item, answer, stop)
            except RecordTooLarge as error:
                for letter, letter_answer in self._send([self._letter(record, OUTPUT_TOO_LARGE, str(error))]):
                    self._await(letter, letter_answer, stop)
        self._finished[record.topic, record.partition] = record.offset + 1

    def _await(self, item: Outgoing, answer: Future[Position], stop: threading.Event) -> None:
        """Waits for the first answer, and produces the same bytes again where it was that none came in time."""
        try:
            answer.result()
        except Retryable:
            self._retried(lambda: self._producer.produce(item).result(), stop)

    def _retried(self, action: Callable[[], T], stop: threading.Event) -> T:
        """Raises the last Retryable when the time to retry is over, _StopRequested at a stop."""
        deadline = min(time.monotonic() + self._limits.retry_s, self._retry_end)
        pause_s = PAUSE_FIRST_S
        while True:
            try:
                return action()
            except Retryable as error:
                if time.monotonic() > deadline:
                    raise
                log.warning("consumer_retries", group=self._group_id, error=str(error), after_s=pause_s)
            if stop.wait(pause_s):
                raise _StopRequested
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def _letter(self, record: Record, reason: str, error: str) -> Outgoing:
        log.warning("consumer_dead_letter", group=self._group_id, position=str(record.position), reason=reason)
        return dead_letter(record, reason, error, reader=self._group_id)

    def _hand_over(self, places: Collection[Place]) -> None:
        """Called by the member between two polls: everything polled before is finished."""
        self._commit(places)
        for place in places:
            self._finished.pop(place, None)
            self._committed.pop(place, None)
        self._on_revoked(places)

    def _commit(self, places: Collection[Place]) -> None:
        moved = {
            place: offset
            for place, offset in self._finished.items()
            if place in places and self._committed.get(place) != offset
        }
        if moved and self._member.commit(moved):
            self._committed |= moved
