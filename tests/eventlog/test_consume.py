"""What every consumer is promised, on Kafka and on its memory twin: nothing skipped, nothing lost, one owner at a time."""

import contextlib
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, MutableMapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from claw_r1.eventlog.consume import ConsumeLimits, ConsumerLoop, Output, Work, consume
from claw_r1.eventlog.errors import LogError, NotAcknowledged, RecordRefused, Retryable, TopicMissing
from claw_r1.eventlog.memory import MemoryLog, MemoryProducer
from claw_r1.eventlog.records import Outgoing, Position, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.envelopes import decision_id
from claw_r1.schemas.events import Envelope, TrajectoryStarted
from claw_r1.schemas.topics import CALLS, DEAD_LETTERS, LARGEST_RECORD_BYTES, REWARDS
from tests.eventlog.conftest import PARTITIONS
from tests.eventlog.samples import AnyLog, item, names, started
from tests.patience import until

GROUP = "judges"
WAIT_S = 60
NEVER_S = 3600.0
OFTEN = ConsumeLimits(commit_interval_s=0.01)


def judged(record: Record) -> list[Output]:
    """A word about the record whose event id is a function of it."""
    event = record.event()
    assert isinstance(event, TrajectoryStarted)
    subject = (event.group_id, event.trajectory_id)
    envelope = Envelope(event_id=decision_id("judged", *subject), occurred_at_us=1, producer="judge/0")
    word = TrajectoryStarted(envelope=envelope, group_id=event.group_id, trajectory_id=f"{event.trajectory_id}!")
    return [(REWARDS, b"g", word)]


def publish(log: AnyLog, items: Iterable[Outgoing]) -> list[Position]:
    with contextlib.closing(log.producer()) as producer:
        return [future.result(WAIT_S) for future in [producer.produce(item) for item in items]]


def numbered(count: int, first: int = 0) -> list[Outgoing]:
    return [item(str(number), partition=number % PARTITIONS) for number in range(first, first + count)]


def in_topic(log: AnyLog, topic=REWARDS) -> list[Record]:
    with contextlib.closing(log.reader([topic])) as reader:
        return list(reader.read_to_end())


def committed(log: AnyLog, group: str = GROUP) -> dict[int, int | None]:
    """Where the group continues in each partition."""
    offsets = log.committed_offsets(group, [CALLS], range(PARTITIONS))
    return {number: offset for (_, number), offset in offsets.items()}


def silent_limits(log: AnyLog) -> ConsumeLimits:
    """Kafka puts nobody out who was silent for less than six seconds; the log in memory does as it is told."""
    return ConsumeLimits(work_timeout_s=1.0 if isinstance(log, MemoryLog) else 6.0, commit_interval_s=NEVER_S)


def waits(lines: Iterable[MutableMapping[str, Any]]) -> list[MutableMapping[str, Any]]:
    """The log lines in which a consumer says that it waits."""
    return [line for line in lines if line["event"] == "consumer_waits"]


@contextlib.contextmanager
def running(
    log: AnyLog, work: Work, *, limits: ConsumeLimits = OFTEN, group: str = GROUP
) -> Iterator[threading.Thread]:
    """`consume` in a thread, stopped at the end of the block; its error, if any, is raised here."""
    stop = threading.Event()
    outcome: Future[None] = Future()

    def run() -> None:
        try:
            outcome.set_result(consume(log, [CALLS], group, work, stop=stop, limits=limits))
        except Exception as error:  # noqa: BLE001  # whatever it is, the test sees it
            outcome.set_exception(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield thread
    finally:
        stop.set()
        outcome.result(WAIT_S)


def loop(log: AnyLog, work: Work, limits: ConsumeLimits = OFTEN) -> "contextlib.closing[ConsumerLoop]":
    return contextlib.closing(ConsumerLoop(log, [CALLS], GROUP, work, limits=limits))


def test_each_record_is_worked_on_and_the_group_goes_on_where_it_stopped(log: AnyLog) -> None:
    """Outputs stand in the log when `consume` returns, offsets behind the last record; the next start does nothing twice."""
    publish(log, numbered(20))
    with running(log, judged):
        until(lambda: len(in_topic(log)) == 20)
    assert committed(log) == {0: 10, 1: 10}
    publish(log, numbered(4, first=20))
    with running(log, judged):
        until(lambda: len(in_topic(log)) >= 24)
    assert sorted(names(in_topic(log)), key=lambda name: int(name[:-1])) == [f"{number}!" for number in range(24)]


def test_a_consumer_without_work_says_once_that_it_waits(log: AnyLog) -> None:
    """On an empty log, and after the last record: one line with the group, the reason and what to do, not one per poll."""
    with capture_logs() as lines, running(log, judged):
        until(lambda: waits(lines))
        publish(log, numbered(4))
        until(lambda: len(in_topic(log)) == 4)
    (line,) = waits(lines)
    assert line["group"] == GROUP
    assert "every record that came" in line["reason"]
    assert "a group of another name" in line["advice"]


def test_offsets_never_move_past_an_output_that_is_not_acknowledged(log: AnyLog) -> None:
    """At any moment the records before the committed offset have their outputs in the log."""
    publish(log, numbered(200))
    with running(log, judged, limits=replace(OFTEN, records_max=3)):
        while len(done := in_topic(log)) < 200:
            at_least = committed(log)  # read before the outputs
            done = names(in_topic(log))
            for number, offset in at_least.items():
                assert {f"{n}!" for n in range(number, 2 * (offset or 0), PARTITIONS)} <= set(done)


def test_what_work_kept_in_hand_is_written_before_its_offsets_move(log: AnyLog) -> None:
    """The outputs of a whole poll come from `rest`; where it fails, no record of the poll counts as done, and all come again."""
    publish(log, numbered(6))
    kept: list[Record] = []
    polls: list[int] = []

    def rest() -> list[Output]:
        polls.append(len(kept))
        records, kept[:] = list(kept), []
        if records and len(polls) == len([size for size in polls if not size]) + 1:
            raise LogError("the first poll with records")
        return [output for record in records for output in judged(record)]

    def keep(record: Record) -> list[Output]:
        kept.append(record)
        return []

    def consumer() -> "contextlib.closing[ConsumerLoop]":
        return contextlib.closing(ConsumerLoop(log, [CALLS], GROUP, keep, rest=rest, limits=OFTEN))

    stop = threading.Event()
    with consumer() as failing, pytest.raises(LogError, match="first poll"):
        until(lambda: False, step=lambda: failing.step(stop))
    assert set(committed(log).values()) == {None}
    with consumer() as successor:
        until(lambda: len(in_topic(log)) == 6, step=lambda: successor.step(stop))
        successor.commit()
    assert committed(log) == {0: 3, 1: 3}
    assert sorted(names(in_topic(log))) == [f"{number}!" for number in range(6)]


def test_what_a_member_did_not_commit_is_done_again_to_the_same_events(log: AnyLog) -> None:
    """Put out between output and commit, a member commits nothing any more; its successor writes the same event ids."""
    publish(log, numbered(6))
    stop = threading.Event()
    with loop(log, judged, silent_limits(log)) as silent:
        until(lambda: len(in_topic(log)) == 6, step=lambda: silent.step(stop))
        with loop(log, judged, silent_limits(log)) as successor:
            until(lambda: len(in_topic(log)) == 12, step=lambda: successor.step(stop))
            silent.commit()
            assert committed(log) == {0: None, 1: None}
            publish(log, numbered(2, first=6))
            until(lambda: len(in_topic(log)) == 14, step=lambda: successor.step(stop))
        assert committed(log) == {0: 4, 1: 4}
        silent.commit()  # nobody is in the group, so Kafka itself would take it
        assert committed(log) == {0: 4, 1: 4}
    copies = Counter(record.event().envelope.event_id for record in in_topic(log))
    assert sorted(copies.values()) == [1, 1, *[2] * 6]
    assert committed(log) == {0: 4, 1: 4}


def test_a_member_that_was_put_out_comes_back(log: AnyLog) -> None:
    """Its next poll joins the group again, and it works on from the group's offsets, not from its own."""
    publish(log, numbered(2))
    stop = threading.Event()
    revoked: list[object] = []
    with contextlib.closing(
        ConsumerLoop(log, [CALLS], GROUP, judged, limits=silent_limits(log), on_revoked=revoked.extend)
    ) as silent:
        until(lambda: len(in_topic(log)) == 2, step=lambda: silent.step(stop))
        with loop(log, judged, silent_limits(log)) as successor:
            until(lambda: len(in_topic(log)) == 4, step=lambda: successor.step(stop))
        assert committed(log) == {0: 1, 1: 1}
        publish(log, numbered(2, first=2))
        until(lambda: len(in_topic(log)) == 6, step=lambda: silent.step(stop))
    assert len(revoked) >= 2
    assert committed(log) == {0: 2, 1: 2}


def test_two_members_share_the_work_and_neither_repeats_the_other(log: AnyLog) -> None:
    """A second member joins in the middle and one leaves: each record is done, and done once, since all end in order."""
    publish(log, numbered(50))
    workers: dict[str, str] = {}

    def work_of(name: str) -> Work:
        def work(record: Record) -> list[Output]:
            outputs = judged(record)
            workers[outputs[0][2].trajectory_id] = name
            return outputs

        return work

    small = replace(OFTEN, records_max=5)
    with running(log, work_of("first"), limits=small):
        until(lambda: len(in_topic(log)) >= 10)
        with running(log, work_of("second"), limits=small):
            number = iter(range(50, 10_000, 10))
            until(
                lambda: {"first", "second"} <= set(list(workers.values())[-20:]),
                step=lambda: publish(log, numbered(10, next(number))),
            )
        total = next(number)
        publish(log, numbered(10, total))
        until(lambda: len(workers) == total + 10)
    assert Counter(names(in_topic(log))) == Counter(f"{number}!" for number in range(total + 10))


def test_a_member_knows_its_partitions_whatever_is_in_them(log: AnyLog) -> None:
    """`on_assigned` names all that it holds, after each poll and before the work: empty ones too, and none that it gave up."""
    publish(log, [item("0", partition=0)])
    stop, assigned, at_work = threading.Event(), {"first": (), "second": ()}, []

    def member(name: str) -> "contextlib.closing[ConsumerLoop]":
        def work(record: Record) -> list[Output]:
            at_work.append(set(assigned[name]))
            return judged(record)

        def note(places: Iterable[tuple[str, int]]) -> None:
            assigned[name] = tuple(sorted(places))

        return contextlib.closing(ConsumerLoop(log, [CALLS], GROUP, work, on_assigned=note, limits=OFTEN))

    both = tuple((log.settings.catalogue().name(CALLS), number) for number in (0, 1))
    with member("first") as first:
        until(lambda: assigned["first"] == both and at_work, step=lambda: first.step(stop))
        assert at_work == [set(both)]
        with member("second") as second:
            until(
                lambda: assigned["second"] and sorted(assigned["first"] + assigned["second"]) == list(both),
                step=lambda: (first.step(stop), second.step(stop)),
            )
        until(lambda: assigned["first"] == both, step=lambda: first.step(stop))


def test_what_work_remembers_it_forgets_before_another_member_goes_on(log: AnyLog) -> None:
    """`on_revoked` names the partitions before their next owner has them, and their offsets are committed by then."""
    publish(log, numbered(4))
    stop = threading.Event()
    revoked: list[tuple[str, int]] = []

    def on_revoked(places: Iterable[tuple[str, int]]) -> None:
        assert set(committed(log).values()) <= {2, None}
        revoked.extend(places)

    first = ConsumerLoop(log, [CALLS], GROUP, judged, limits=silent_limits(log), on_revoked=on_revoked)
    until(lambda: len(in_topic(log)) == 4, step=lambda: first.step(stop))
    first.close()
    assert sorted(revoked) == [(log.settings.catalogue().name(CALLS), number) for number in (0, 1)]
    assert committed(log) == {0: 2, 1: 2}


def test_a_poison_record_goes_to_the_dead_letters_and_the_next_one_is_done(log: AnyLog) -> None:
    """Bytes that are no event, and a record that the work refuses, lie there with their reasons; offsets pass them."""
    poison = Outgoing(topic=CALLS, key=b"g", value=b"\x01garbage", partition=0)
    publish(log, [poison, item("refused", partition=0), item("fine", partition=0)])

    def work(record: Record) -> list[Output]:
        outputs = judged(record)
        if outputs[0][2].trajectory_id == "refused!":
            raise RecordRefused("too_rude", "a word that nobody judges")
        return outputs

    with running(log, work):
        until(lambda: committed(log)[0] == 3)
    letters = [dict(record.headers) for record in in_topic(log, DEAD_LETTERS)]
    assert [letter["claw_reason"] for letter in letters] == [b"bad_magic", b"too_rude"]
    assert {(letter["claw_reader"], letter["claw_source_partition"]) for letter in letters} == {(GROUP.encode(), b"0")}
    assert letters[1]["claw_error"] == b"a word that nobody judges"
    assert names(in_topic(log)) == ["fine!"]


def test_an_output_that_no_log_takes_makes_its_record_a_dead_letter(log: AnyLog) -> None:
    """The other outputs and records are not held up by it."""
    publish(log, [item("huge", partition=0), item("fine", partition=0)])

    def work(record: Record) -> list[Output]:
        (output,) = judged(record)
        if output[2].trajectory_id != "huge!":
            return [output]
        return [output, (REWARDS, b"g", started("x" * LARGEST_RECORD_BYTES))]

    with running(log, work):
        until(lambda: committed(log)[0] == 2)
    (letter,) = in_topic(log, DEAD_LETTERS)
    assert dict(letter.headers)["claw_reason"] == b"output_too_large"
    assert names([letter]) == ["huge"]
    assert names(in_topic(log)) == ["huge!", "fine!"]


def test_what_may_succeed_later_is_tried_again(log: AnyLog) -> None:
    """A Retryable of the work holds its record back, in order, until it passes."""
    publish(log, [item(name, partition=0) for name in ("first", "second")])
    attempts: list[str] = []

    def work(record: Record) -> list[Output]:
        attempts.extend(names([record]))
        if len(attempts) < 3:
            raise Retryable("the model is loading")
        return judged(record)

    with running(log, work):
        until(lambda: committed(log)[0] == 2)
    assert attempts == ["first", "first", "first", "second"]
    assert names(in_topic(log)) == ["first!", "second!"]


def test_retrying_has_an_end(log: AnyLog) -> None:
    """After `retry_s` the error ends the consumer, and the record stays uncommitted."""
    publish(log, [item(partition=0)])

    def away(record: Record) -> list[Output]:
        raise Retryable("the model is away")

    with pytest.raises(Retryable, match="away"), running(log, away, limits=replace(OFTEN, retry_s=0)) as thread:
        thread.join(WAIT_S)
    assert committed(log)[0] is None


def test_a_bug_of_the_work_ends_the_consumer_before_the_record_is_committed(log: AnyLog) -> None:
    """The exception comes out as it is; what was finished before is committed, the record is there for a mended version."""
    publish(log, [item(name, partition=0) for name in ("fine", "bug")])

    def work(record: Record) -> list[Output]:
        if names([record]) == ["bug"]:
            raise ZeroDivisionError
        return judged(record)

    with pytest.raises(ZeroDivisionError), running(log, work, limits=replace(OFTEN, records_max=1)) as thread:
        thread.join(WAIT_S)
    assert committed(log)[0] == 1
    with running(log, judged):
        until(lambda: names(in_topic(log))[-1] == "bug!")


def test_records_that_were_polled_with_a_bug_are_finished_once(log: AnyLog) -> None:
    """A consumer that a bug ends again and again appends nothing twice: what came before in the same poll is committed."""
    publish(log, [item(name, partition=0) for name in ("fine", "bug")])
    until(lambda: len(in_topic(log, CALLS)) == 2)

    def work(record: Record) -> list[Output]:
        if names([record]) == ["bug"]:
            raise ZeroDivisionError
        return judged(record)

    for _ in range(3):
        with pytest.raises(ZeroDivisionError), running(log, work) as thread:
            thread.join(WAIT_S)
    assert committed(log)[0] == 1
    assert names(in_topic(log)) == ["fine!"]


def test_retries_end_before_the_group_takes_the_partitions_away() -> None:
    """However long `retry_s` is: a member that was put out could commit nothing, and its successor would begin again."""
    log = MemoryLog(LogSettings(partitions=PARTITIONS))
    publish(log, [item(name, partition=0) for name in ("fine", "away")])

    def work(record: Record) -> list[Output]:
        if names([record]) == ["away"]:
            raise Retryable("the model is away")
        return judged(record)

    limits = ConsumeLimits(work_timeout_s=0.4, retry_s=NEVER_S)
    with pytest.raises(Retryable, match="away"), running(log, work, limits=limits) as thread:
        thread.join(WAIT_S)
    assert committed(log)[0] == 1


def test_a_stop_waits_for_the_record_in_hand_and_no_other(log: AnyLog) -> None:
    """Of a poll of many records the one in hand is finished and committed; the rest is the next start's."""
    publish(log, [item(str(number), partition=0) for number in range(50)])
    stop = threading.Event()

    def work(record: Record) -> list[Output]:
        if record.offset == 7:
            stop.set()
        return judged(record)

    consume(log, [CALLS], GROUP, work, stop=stop)
    assert committed(log)[0] == 8
    assert len(in_topic(log)) == 8


def test_a_stop_ends_a_retry(log: AnyLog) -> None:
    """Whoever waits for a service that is away stops at once, without the record, and with those before it."""
    publish(log, [item(name, partition=0) for name in ("fine", "away")])
    stop = threading.Event()

    def work(record: Record) -> list[Output]:
        if names([record]) == ["fine"]:
            return judged(record)
        stop.set()
        raise Retryable("the model is away")

    consume(log, [CALLS], GROUP, work, stop=stop)
    assert committed(log)[0] == 1


def test_no_more_records_are_in_hand_than_the_limit_says(log: AnyLog) -> None:
    """A step works on at most `records_max` records."""
    publish(log, numbered(30))
    with loop(log, judged, replace(OFTEN, records_max=7)) as bounded:
        sizes: list[int] = []
        until(lambda: sum(sizes) == 30, step=lambda: sizes.append(bounded.step(threading.Event())))
    assert max(sizes) <= 7


def test_a_group_whose_history_was_cut_says_so(log: AnyLog) -> None:
    """Records that retention took before the group read them are an error, not a jump."""
    publish(log, [item(str(number), partition=0) for number in range(6)])
    with loop(log, judged, replace(OFTEN, records_max=1)) as early:
        until(lambda: len(in_topic(log)) == 1, step=lambda: early.step(threading.Event()))
    log.delete_records({(log.settings.catalogue().name(CALLS), 0): 4})
    with pytest.raises(LogError, match="begins at 4"), running(log, judged) as thread:
        thread.join(WAIT_S)


def test_a_group_that_is_new_begins_where_the_log_begins(log: AnyLog) -> None:
    """Retention before the group's first start is no error."""
    publish(log, [item(str(number), partition=0) for number in range(6)])
    log.delete_records({(log.settings.catalogue().name(CALLS), 0): 4})
    with running(log, judged):
        until(lambda: len(in_topic(log)) == 2)
    assert names(in_topic(log)) == ["4!", "5!"]


def test_a_missing_topic_is_named_at_the_start(log: AnyLog) -> None:
    """A consumer of a topic that nobody created does not wait in silence."""
    settings = log.settings.model_copy(update={"prefix": "bare"})
    bare = MemoryLog(settings, empty=True) if isinstance(log, MemoryLog) else type(log)(settings)
    with pytest.raises(TopicMissing, match=r"bare\.calls"):
        consume(bare, [CALLS], GROUP, judged, stop=threading.Event())


class Deaf(MemoryLog):
    """A log that does not acknowledge the first outputs, though it has them."""

    def __init__(self, unanswered: int) -> None:
        super().__init__(LogSettings(partitions=PARTITIONS))
        self.unanswered = unanswered

    def producer(self) -> "DeafProducer":
        return DeafProducer(self)


class DeafProducer(MemoryProducer):
    def __init__(self, log: Deaf) -> None:
        super().__init__(log)
        self._deaf = log

    def produce(self, item: Outgoing) -> Future[Position]:
        future = super().produce(item)
        if item.topic is REWARDS and self._deaf.unanswered > 0:
            self._deaf.unanswered -= 1
            future = Future()
            future.set_exception(NotAcknowledged("no answer in time"))
        return future


def test_an_output_without_an_answer_is_produced_again_as_the_same_event() -> None:
    """The log may hold two copies with one event id; the record counts as done only after an answer came."""
    log = Deaf(unanswered=3)
    publish(log, [item(str(number), partition=0) for number in range(2)])
    with running(log, judged):
        until(lambda: committed(log)[0] == 2)
    ids = Counter(record.event().envelope.event_id for record in in_topic(log))
    assert sorted(ids.values()) == [2, 3]
