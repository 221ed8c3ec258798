"""`claw topics copy`: the same log at another place, with more partitions, however often it is killed on the way."""

import math
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from claw_r1.claw.answers import Answer, emit
from claw_r1.claw.cli import REFUSALS
from claw_r1.claw.data.verify import run_verify
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.local.kafka.node import LocalBroker
from claw_r1.claw.topics.copy_log import COPIED, Copy, LogCopy, partitions_of_copy, run_copy
from claw_r1.consumers.verify.oracle.digests import tokens_digest
from claw_r1.consumers.verify.pool_comparison import compare
from claw_r1.consumers.verify.report import Report
from claw_r1.eventlog.kafka.admin import as_on_broker, create_topics, delete_records, end_offsets
from claw_r1.eventlog.kafka.librdkafka import consumer_config
from claw_r1.eventlog.kafka.reader import commit_offsets, committed_offsets
from claw_r1.eventlog.kafka.transactions import TransactionalProducer
from claw_r1.eventlog.partitioner import partition_of
from claw_r1.eventlog.records import Outgoing, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.runtime.processes.child import module_argv, start
from claw_r1.schemas.events import (
    BatchAssembled,
    CallCaptured,
    FactPosition,
    KeyRecorded,
    PlannedStep,
    PlannedTrajectory,
)
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import BATCHES, CALLS, FACTS, KEYS, REWARDS, VERDICTS, Topic
from claw_r1.streams.rebuild import rebuild
from tests import facts
from tests.soak import SOAK
from tests.streams.pool import facts_in_log, load, outgoing, publish, records

pytestmark = pytest.mark.kafka

KILLS = 20 if SOAK else 2
OFFSETS = "__consumer_offsets"
OFFSET_KEY = (b"\0\0", b"\0\1")
"""The topic in which Kafka keeps what groups commit, and how keys begin that are of an offset."""


@pytest.fixture
def old(log_settings: LogSettings, monkeypatch: pytest.MonkeyPatch) -> LogSettings:
    """A log with facts of some groups, one of them doubled as a spool does, a key, a pool, and a run's plans of two calls."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", log_settings.bootstrap_servers)
    events = load(groups=20, members=2)
    publish(log_settings, map(outgoing, [*events, events[0]]))
    key = KeyRecorded(envelope=facts.envelope(), digest="d", name="n", role="agent")
    publish(log_settings, [Outgoing.of(KEYS, b"d", key)])
    calls = [(event, at) for event, at in facts_in_log(log_settings) if isinstance(event, CallCaptured)]
    publish(log_settings, [Outgoing.of(BATCHES, b"run", plan("run", *calls[5:7]))])
    rebuild(log_settings, end_offsets(log_settings, FACTS), lambda _done, _total: None)
    return log_settings


def plan(run: str, *calls: tuple[CallCaptured, FactPosition]) -> BatchAssembled:
    rows = tuple(
        PlannedTrajectory(
            group_id=call.group_id,
            trajectory_id=call.trajectory_id,
            reward=0.0,
            advantage=0.0,
            steps=(PlannedStep(call_id=call.call_id, position=at, digest=tokens_digest(call), trained=True),),
        )
        for call, at in calls
    )
    return BatchAssembled(
        envelope=facts.envelope(), run_id=run, sequence=0, version=0, spec="{}", trajectories=rows, seed=0
    )


@pytest.fixture
def new(old: LogSettings) -> LogSettings:
    """Where it is copied to."""
    return old.model_copy(update={"prefix": f"{old.prefix}-copy", "partitions": 5})


def copied_to(old: LogSettings, new: LogSettings) -> dict[str, object]:
    answer = run_copy(old.prefix, new.prefix, new.partitions)
    assert isinstance(answer.value, dict)
    return answer.value


def kinds(answer: Answer) -> dict[str, int]:
    """How many offenders of each kind a verification found."""
    assert isinstance(answer.value, dict)
    return {kind: entry["count"] for kind, entry in answer.value["findings"].items()}


def facts_by_group(settings: LogSettings) -> dict[bytes | None, list[bytes | None]]:
    """The facts of each group, in their order."""
    groups: dict[bytes | None, list[bytes | None]] = {}
    for topic in (CALLS, REWARDS):
        for record in records(settings, topic):
            groups.setdefault(record.key, []).append(record.value)
    return groups


def test_the_same_log_in_more_partitions(old: LogSettings, new: LogSettings) -> None:
    """Facts by group in their order, keys, the pool but for places, and a plan whose calls are found; the second time nothing."""
    answer = copied_to(old, new)
    assert as_on_broker(new).partitions == 5
    assert facts_by_group(new) == facts_by_group(old)
    assert len({record.partition for record in records(new, CALLS)}) > old.partitions
    assert [record.value for record in records(new, KEYS)] == [record.value for record in records(old, KEYS)]
    assert answer["left_out"] == []
    (assembled,) = (record.event() for record in records(new, BATCHES))
    assert isinstance(assembled, BatchAssembled)
    places = {(at.topic, at.partition, at.offset): event for event, at in reversed(facts_in_log(new))}
    for row in assembled.trajectories:
        (step,) = row.steps
        call = places[step.position.topic, step.position.partition, step.position.offset]
        assert isinstance(call, CallCaptured)
        assert (call.group_id, call.trajectory_id, call.call_id) == (row.group_id, row.trajectory_id, step.call_id)
    assert kinds(run_verify(None, None, prefix=new.prefix, against=old.prefix)) == {}
    again = copied_to(old, new)
    assert again["rows"] == 0
    assert isinstance(again["records"], dict)
    assert not any(again["records"].values())


@pytest.mark.parametrize(("before", "after"), [(8, 8), (8, 64), (8, 12), (3, 5), (1, 4)])
def test_a_verdict_is_found_beside_every_group_that_was_there(before: int, after: int) -> None:
    """Else its scorer would be asked again, and paid again; with as many partitions it lies where it lay, once."""
    lay = {each: record_in(VERDICTS, each, b"verdict") for each in range(before)}
    for group in (str(number).encode() for number in range(300)):
        copies = partitions_of_copy(VERDICTS, lay[partition_of(group, before)], before, after)
        assert partition_of(group, after) in copies
        assert len(copies) == after // math.gcd(before, after)


@pytest.mark.parametrize(("before", "after"), [(8, 8), (8, 64), (8, 12), (3, 5)])
def test_a_fact_of_another_partition_than_its_groups_stays_refused(before: int, after: int) -> None:
    """It never counted; a copy must not be what makes it count."""
    for key in (str(number).encode() for number in range(100)):
        for place in range(before):
            (copy,) = partitions_of_copy(REWARDS, record_in(REWARDS, place, key), before, after)
            assert (copy == partition_of(key, after)) == (place == partition_of(key, before))
    assert partitions_of_copy(REWARDS, record_in(REWARDS, before - 1, None), before, after) == (before - 1,)


def record_in(topic: Topic, partition: int, key: bytes | None) -> Record:
    return Record(f"claw.{topic.name}", partition, 0, 0, key, b"")


def test_verdicts_and_misplaced_facts_in_more_partitions(old: LogSettings, new: LogSettings) -> None:
    """A verdict lies where its scorer looks, once it goes on there; a misplaced reward counts in neither pool."""
    group = facts_in_log(old)[0][0].group_id
    place = partition_of(group_key(group), old.partitions)
    wrong = facts.reward(group, "misplaced", 99.0)
    publish(old, [Outgoing(topic=VERDICTS, key=b"verdict", value=b"said", partition=place)])
    publish(old, [Outgoing.of(REWARDS, group_key(group), wrong, (place + 1) % old.partitions)])
    rebuild(old, end_offsets(old, FACTS), lambda _done, _total: None)
    answer = copied_to(old, new)
    assert isinstance(answer["records"], dict)
    assert answer["records"][VERDICTS.name] == 1
    assert partition_of(group_key(group), new.partitions) in {one.partition for one in records(new, VERDICTS)}
    assert kinds(run_verify(None, None, prefix=new.prefix, against=old.prefix)) == {}


def test_what_came_since_is_copied_by_the_next_one(old: LogSettings, new: LogSettings) -> None:
    """So that a log is copied while it is used, and stands still for a moment only. A pool that differs is found."""
    copied_to(old, new)
    publish(old, map(outgoing, load(groups=3, members=2, prefix="later")))
    rebuild(old, end_offsets(old, FACTS), lambda _done, _total: None)
    report = Report()
    compare(new, old, report)
    assert len(report.findings["pool_missing_against"]) == 3 * (2 * 3 + 2 + 1)
    copied_to(old, new)
    assert facts_by_group(new) == facts_by_group(old)
    report = Report()
    compare(new, old, report)
    assert report.ok


def committed_at(settings: LogSettings, group: str) -> dict[bytes, int]:
    """When each offset of a group was committed last: a time in milliseconds, by the key that Kafka gives the offset."""
    times: dict[bytes, int] = {}
    # Uncommitted: Kafka marks what a transaction committed a moment after it has answered.
    with closing(Consumer({**consumer_config(settings), "isolation.level": "read_uncommitted"})) as reader:
        unread = set(reader.list_topics(OFFSETS, timeout=10).topics[OFFSETS].partitions)
        reader.assign([TopicPartition(OFFSETS, number, OFFSET_BEGINNING) for number in unread])
        while unread:
            message = reader.poll(10)
            assert message is not None, "the broker does not answer"
            if message.error():
                unread.discard(message.partition())  # the mark of its end
            elif (key := message.key() or b"").startswith(OFFSET_KEY) and group.encode() in key:
                times[key] = message.timestamp()[1]
    return times


def test_each_pass_commits_the_offsets_of_quiet_partitions_too(old: LogSettings, new: LogSettings) -> None:
    """Kafka drops the offsets of a group without members one by one, each so long after it was committed itself."""
    copied_to(old, new)
    group = LogCopy(old, new).group
    first = committed_at(new, group)
    copied_to(old, new)
    later = committed_at(new, group)
    assert len(later) == len(COPIED) * old.partitions
    assert [key for key, time_ms in first.items() if later[key] <= time_ms] == []


def test_an_offset_that_kafka_dropped_is_no_beginning(old: LogSettings, new: LogSettings) -> None:
    """The others are kept, so that this is no first pass: from the beginning all of its partition would be there twice."""
    copied_to(old, new)
    before = facts_by_group(new)
    copy = LogCopy(old, new)
    offsets = committed_offsets(new, copy.group, COPIED, range(old.partitions))
    assert None not in offsets.values(), "an empty partition has an offset, too, so that none means that it is lost"
    (name, partition) = next(place for place, offset in offsets.items() if offset)
    kept = {place: offset for place, offset in offsets.items() if offset is not None and place != (name, partition)}
    copy.group = "without-one"
    commit_offsets(new, copy.group, kept)
    with pytest.raises(CannotRun, match=rf"how far {name}\[{partition}\] .*: name an unused prefix"):
        copy.run()
    assert facts_by_group(new) == before


def test_into_another_cluster(old: LogSettings, local_broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the same prefix, in as many partitions; what came since the first time is copied by the second."""
    there = old.model_copy(update={"bootstrap_servers": local_broker.bootstrap})
    for _ in range(2):
        answer = run_copy(old.prefix, old.prefix, into=there.bootstrap_servers)
        assert isinstance(answer.value, dict)
        assert (answer.value["partitions"], answer.value["left_out"]) == (old.partitions, [])
        assert facts_by_group(there) == facts_by_group(old)
        monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", there.bootstrap_servers)
        against = f"{old.prefix}@{old.bootstrap_servers}"
        assert kinds(run_verify(None, None, prefix=old.prefix, against=against)) == {}
        monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", old.bootstrap_servers)
        publish(old, map(outgoing, load(groups=3, members=2, prefix="later")))
        rebuild(old, end_offsets(old, FACTS), lambda _done, _total: None)
    assert [record.key for record in records(there, BATCHES)] == [b"run"]


@pytest.fixture
def many(old: LogSettings) -> LogSettings:
    """More facts than one transaction takes."""
    publish(old, map(outgoing, load(groups=400, members=4, prefix="many")))
    return old


def killed(old: LogSettings, new: LogSettings) -> Iterator[float]:
    """Starts it, and kills it after each of the times that are asked for, until it ends by itself."""
    command = module_argv(
        *("claw_r1.claw", "topics", "copy", "--prefix", old.prefix, "--to", new.prefix, "--partitions", "5")
    )
    for number in range(KILLS):
        process = start(command, env=dict(os.environ), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        before = copied(new)
        deadline = time.monotonic() + 60
        while process.poll() is None and copied(new) == before and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.05 * number)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        yield process.wait(10)


def copied(new: LogSettings) -> int:
    try:
        return sum(end_offsets(new, FACTS).values())
    except REFUSALS:
        return 0


@pytest.mark.slow
@pytest.mark.soak
def test_killed_anywhere_it_goes_on(many: LogSettings, new: LogSettings) -> None:
    """Nothing is left out, and nothing is written twice but what was there twice."""
    assert -signal.SIGKILL in list(killed(many, new))
    copied_to(many, new)
    assert facts_by_group(new) == facts_by_group(many)
    twice = Counter(dict(record.headers)["ce_id"] for record in records(new, CALLS))
    assert sorted(twice.values())[-2:] == [1, 2]


def test_killed_in_its_first_transaction_it_begins_again(old: LogSettings, new: LogSettings) -> None:
    """What that wrote is aborted, takes offsets, and is no fact of anybody's."""
    create_topics(new)
    killed_in = Producer({"bootstrap.servers": new.bootstrap_servers, "transactional.id": LogCopy(old, new).group})
    killed_in.init_transactions()
    killed_in.begin_transaction()
    killed_in.produce(new.catalogue().name(CALLS), b"half", partition=0)
    killed_in.flush()
    copied_to(old, new)
    assert facts_by_group(new) == facts_by_group(old)


def test_a_plan_that_cannot_be_translated_is_left_out_with_its_run(old: LogSettings, new: LogSettings) -> None:
    """It is named; plans of other runs are copied."""
    nowhere = FactPosition(topic=f"{old.prefix}.calls", partition=0, offset=10_000)
    publish(old, [Outgoing.of(BATCHES, b"lost", plan("lost", (facts.call(), nowhere)))])
    for _ in range(2):  # what comes since is left out, too
        assert copied_to(old, new)["left_out"] == ["lost"]
        assert [record.key for record in records(new, BATCHES)] == [b"run"]
        publish(old, [Outgoing.of(BATCHES, b"lost", plan("lost"))])


class LiveLog(LogCopy):
    """The old log is in use: while its calls are copied one more is captured, and planned."""

    def _write(self, producer: TransactionalProducer, topic: Topic, copies: Iterable[Copy], total: int) -> int:
        count = super()._write(producer, topic, copies, total)
        if topic is CALLS:
            publish(self.source, [outgoing(call := facts.call("late", "t", "c"))])
            at = next(at for event, at in facts_in_log(self.source) if event == call)
            publish(self.source, [Outgoing.of(BATCHES, b"run", plan("run", (call, at)))])
        return count


def test_a_run_that_goes_on_meanwhile_is_not_left_out(old: LogSettings, new: LogSettings) -> None:
    """A plan is copied once the calls are that it names, this time or the next."""
    create_topics(new)
    live = LiveLog(old, new)
    live.run()
    assert (live.left_out, len(records(new, BATCHES))) == (set(), 1)
    again = LogCopy(old, new)
    again.run()
    assert (again.left_out, len(records(new, BATCHES))) == (set(), 2)


@pytest.mark.parametrize(
    ("to", "partitions", "line"), [("", 5, "takes --to"), ("other", 1, "--partitions takes as many")]
)
def test_what_cannot_be_is_refused(old: LogSettings, to: str, partitions: int, line: str) -> None:
    """In one line, before anything is made."""
    with pytest.raises(REFUSALS, match=line):
        emit(run_copy(old.prefix, to, partitions), as_json=True)


def test_a_prefix_with_facts_of_its_own_is_not_written(old: LogSettings, new: LogSettings) -> None:
    """Whoever copies into a log that is in use would mix two of them; so is one with other partitions, and facts that are gone."""
    copied_to(old, new)
    with pytest.raises(REFUSALS, match=r"was begun with 5 partitions"):
        run_copy(old.prefix, new.prefix, 6)
    other = new.model_copy(update={"prefix": f"{old.prefix}-other"})
    create_topics(other)
    publish(other, [outgoing(facts.call())])
    with pytest.raises(REFUSALS, match="holds facts of its own"):
        copied_to(old, other)
    with pytest.raises(REFUSALS, match="holds facts of its own"):
        copied_to(other, new)  # which is another log's copy
    place = next(place for place, end in end_offsets(old, [CALLS]).items() if end)
    delete_records(old, {place: 2})
    with pytest.raises(REFUSALS, match="retention cut"):
        run_copy(old.prefix, f"{old.prefix}-third", 5)
