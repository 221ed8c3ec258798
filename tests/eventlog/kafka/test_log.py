"""What only a real broker can show: open and aborted transactions, refusal, restarts, backpressure, groups."""

import asyncio
import contextlib
import itertools
import random
import threading
import time

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Producer as RawProducer

from claw_r1.claw.local.kafka.node import LocalBroker
from claw_r1.claw.local.ports import free_ports
from claw_r1.eventlog.errors import BrokerUnreachable, LogError, NotAcknowledged, TopicMissing
from claw_r1.eventlog.follower import Follower
from claw_r1.eventlog.kafka.admin import check_broker, check_catalogue, create_topics, describe_topics, diff_topics
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.kafka.reader import LogReader, committed_offsets
from claw_r1.eventlog.kafka.session import Session
from claw_r1.eventlog.kafka.transactions import TransactionalProducer
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.eventlog.protocols import Reader
from claw_r1.eventlog.records import Outgoing, Place, Position, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.cloudevents import Headers
from claw_r1.schemas.topics import BATCHES, CALLS, GROUPS, REWARDS
from tests.eventlog.samples import AnyLog, item, names, started, visible
from tests.patience import until

pytestmark = pytest.mark.kafka
WAIT_S = 20


# Transactions in the making


def test_an_open_transaction_hides_what_is_behind_it_until_its_id_is_opened_anew(
    kafka: KafkaLog, stack: contextlib.ExitStack
) -> None:
    """A reader stops before the first open transaction and ends there; opening its id aborts it and frees the rest."""
    dying = _begin_and_abandon(kafka.settings, "run", "torn")
    producer = stack.enter_context(contextlib.closing(kafka.producer()))
    producer.produce(item("behind", topic=BATCHES, partition=0)).result(WAIT_S)
    reader = stack.enter_context(contextlib.closing(kafka.reader([BATCHES], partitions=[0])))
    assert list(reader.read_to_end()) == []
    assert reader.at_end()
    owner = stack.enter_context(contextlib.closing(kafka.transactions("run")))
    owner.open()
    assert names(_poll_for(reader, 1)) == ["behind"]
    assert names(kafka.read_range(BATCHES, 0, 0, 3)) == ["behind"]
    del dying


def test_a_read_of_all_that_is_written_waits_for_a_dead_writer_before_it_says_that_this_is_all(
    kafka: KafkaLog, stack: contextlib.ExitStack
) -> None:
    """What stands behind an open transaction is read once its owner is fenced; with nobody to end it, the read says so."""
    dying = _begin_and_abandon(kafka.settings, "run", "torn")
    producer = stack.enter_context(contextlib.closing(kafka.producer()))
    producer.produce(item("behind", topic=BATCHES, partition=0)).result(WAIT_S)
    reader = stack.enter_context(contextlib.closing(LogReader(kafka.settings, [BATCHES], partitions=[0])))
    with pytest.raises(BrokerUnreachable, match="transaction is still open"):
        list(reader.read_written(timeout_s=1.0))
    owner = stack.enter_context(contextlib.closing(kafka.transactions("run")))
    owner.open()
    assert names(reader.read_written(timeout_s=WAIT_S)) == ["behind"]
    del dying


def test_a_read_of_all_that_is_written_has_time_as_long_as_it_moves(
    kafka: KafkaLog, stack: contextlib.ExitStack
) -> None:
    """What its caller does with the records counts against nobody: a long history is read to its end."""
    producer = stack.enter_context(contextlib.closing(kafka.producer()))
    producer.produce(item("first", topic=BATCHES, partition=0)).result(WAIT_S)
    dying = _begin_and_abandon(kafka.settings, "run", "torn")
    reader = stack.enter_context(contextlib.closing(LogReader(kafka.settings, [BATCHES], partitions=[0])))
    written = reader.read_written(timeout_s=2.0)
    assert names([next(written)]) == ["first"]
    time.sleep(2.1)
    stack.enter_context(contextlib.closing(kafka.transactions("run"))).open()
    assert list(written) == []
    del dying


def test_a_writer_that_asks_for_no_positions_still_hears_of_failures(
    kafka: KafkaLog, stack: contextlib.ExitStack
) -> None:
    """Its records are written like any other's, and a record that could not be delivered is named."""
    owner, lost = (
        stack.enter_context(contextlib.closing(TransactionalProducer(settings, "run", positions=False)))
        for settings in (kafka.settings, kafka.settings.model_copy(update={"prefix": "bare"}))
    )
    owner.open()
    assert owner.commit([item("one", topic=BATCHES), item("two", topic=BATCHES)]) == []
    reader = stack.enter_context(contextlib.closing(LogReader(kafka.settings, [BATCHES])))
    assert sorted(names(reader.read_written(timeout_s=WAIT_S))) == ["one", "two"]
    lost.open()
    with pytest.raises(TopicMissing, match=r"bare\."):
        lost.commit([item("nowhere", topic=BATCHES)])


@pytest.mark.parametrize("count", [1, 5])
def test_a_process_refuses_topics_of_another_partition_count(kafka: KafkaLog, count: int) -> None:
    """Folding or planning with a wrong count would look for facts where they are not; the refusal names both counts."""
    check_catalogue(kafka.settings, "operator")
    with pytest.raises(LogError, match=f"the settings say {count}: set CLAW_LOG_PARTITIONS"):
        check_catalogue(kafka.settings.model_copy(update={"partitions": count}), "operator")


def test_a_reader_that_starts_at_the_end_sees_an_open_transaction_that_commits_later(
    kafka: KafkaLog, stack: contextlib.ExitStack
) -> None:
    """The end is the first offset not yet readable, so what was pending at that moment is not missed."""
    raw = _begin_and_abandon(kafka.settings, "run", "pending")
    reader = stack.enter_context(contextlib.closing(kafka.reader([BATCHES], partitions=[0], start="end")))
    raw.commit_transaction(WAIT_S)
    assert names(_poll_for(reader, 1)) == ["pending"]


# Agreement with the memory twin


def test_a_reader_passes_over_what_nobody_wants_and_gets_behind_it(
    kafka: KafkaLog, stack: contextlib.ExitStack
) -> None:
    """By topic and key, without a record of it: the position moves all the same, and a poll comes back in time."""
    producer = stack.enter_context(contextlib.closing(kafka.producer()))
    for number in range(50):
        producer.produce(item(f"{number}", key="odd" if number % 2 else "even", topic=BATCHES, partition=0)).result(
            WAIT_S
        )
    asked = set[tuple[str, bytes | None]]()

    def wants(topic: str, key: bytes | None, headers: Headers) -> bool:
        asked.add((topic, key))
        return key == b"odd" and "ce_type" in dict(headers)

    reader = stack.enter_context(contextlib.closing(LogReader(kafka.settings, [BATCHES], partitions=[0], wants=wants)))
    assert names(list(reader.read_to_end())) == [str(number) for number in range(1, 50, 2)]
    name = kafka.settings.catalogue().name(BATCHES)
    assert reader.positions() == {(name, 0): 50}
    assert asked == {(name, b"odd"), (name, b"even")}
    nothing = stack.enter_context(
        contextlib.closing(LogReader(kafka.settings, [BATCHES], partitions=[0], wants=lambda *_: False))
    )
    assert list(nothing.read_to_end()) == []
    assert nothing.positions() == {(name, 0): 50}


@pytest.mark.parametrize("seed", [1, 2])
def test_memory_and_kafka_agree_on_everything(log_settings: LogSettings, seed: int) -> None:
    """The same random course of publishing, tombstones, transactions and deletion gives equal logs, offset by offset."""
    real, twin = KafkaLog(log_settings), MemoryLog(log_settings)
    assert _course(real, random.Random(seed)) == _course(twin, random.Random(seed))


def _course(log: AnyLog, dice: random.Random) -> object:
    told: list[object] = []
    with contextlib.closing(log.producer()) as producer, contextlib.closing(log.transactions("run")) as owner:
        owner.open()
        for step in range(60):
            items = [_random_item(dice, step) for _ in range(dice.randrange(1, 4))]
            if dice.random() < 0.5:
                told.append(visible(log, owner.commit(items)))
            else:
                told.append([producer.produce(one).result(WAIT_S) for one in items])
    ends = log.end_offsets([CALLS, GROUPS])
    place = max(log.end_offsets([CALLS]), key=lambda place: (ends[place], place))
    log.delete_records({place: ends[place] // 2})
    with contextlib.closing(log.reader([CALLS, GROUPS])) as reader:
        records = sorted(map(_without_time, reader.read_to_end()), key=lambda one: one[:3])
        return told, records, reader.positions(), ends


def _random_item(dice: random.Random, step: int) -> Outgoing:
    key = dice.choice(["", "g", "h", "ключ", "long" * 30]).encode()
    value = None if dice.random() < 0.2 else b"%d" % step
    partition = dice.choice([None, None, 0, 1])
    headers = [("n", b"%d" % step)] if dice.random() < 0.5 else []
    return Outgoing(topic=dice.choice([CALLS, GROUPS]), key=key, value=value, headers=headers, partition=partition)


def _without_time(record: Record) -> tuple[str, int, int, bytes | None, bytes | None, object]:
    return record.topic, record.partition, record.offset, record.key, record.value, record.headers


# A broker that does not answer


def test_a_refusing_broker_is_one_clear_line() -> None:
    """Nobody listens: everything that opens the log raises BrokerUnreachable, saying what to do."""
    settings = _nowhere()
    for attempt in (
        lambda: check_broker(settings, timeout_s=1),
        lambda: create_topics(settings),
        lambda: KafkaLog(settings).reader([CALLS]),
        lambda: KafkaLog(settings).read_range(CALLS, 0, 0, 1),
        lambda: committed_offsets(settings, "g", [CALLS], [0]),
    ):
        with pytest.raises(BrokerUnreachable, match=f"{settings.bootstrap_servers}.*KAFKA_BOOTSTRAP_SERVERS"):
            attempt()


async def test_publishing_to_a_refusing_broker_fails_after_the_acknowledgement_timeout() -> None:
    """NotAcknowledged comes after ack_timeout_ms, not sooner, and close does not hang."""
    producer = EventProducer(_nowhere())
    began = time.monotonic()
    with pytest.raises(NotAcknowledged):
        await producer.publish(CALLS, b"g", started())
    assert time.monotonic() - began > 0.9
    producer.close(timeout_s=0.1)


def test_opening_a_transaction_on_a_refusing_broker_gives_up() -> None:
    """open raises BrokerUnreachable after commit_timeout_s."""
    owner = KafkaLog(_nowhere()).transactions("run")
    with pytest.raises(BrokerUnreachable):
        owner.open()


async def test_closing_fails_what_is_outstanding(stack: contextlib.ExitStack) -> None:
    """A record that waits for an acknowledgement when the producer is closed gets NotAcknowledged: nobody waits for ever."""
    producer = EventProducer(_nowhere(ack_timeout_ms=60_000))
    waiting = asyncio.ensure_future(producer.publish(CALLS, b"g", started()))
    blocked = producer.produce(item())
    await asyncio.sleep(0)
    await asyncio.to_thread(producer.close, 0.1)
    with pytest.raises(NotAcknowledged):
        await asyncio.wait_for(waiting, WAIT_S)
    with pytest.raises(NotAcknowledged):
        blocked.result(WAIT_S)


# The producer under stress


async def test_a_full_queue_makes_callers_wait_and_drops_nothing(log_settings: LogSettings) -> None:
    """With room for ten records, a thousand published at once are all acknowledged, in order."""
    settings = log_settings.model_copy(update={"client_config": {"queue.buffering.max.messages": "10"}})
    producer = EventProducer(settings)
    positions = await producer.publish_all([item(str(n)) for n in range(1000)])
    assert [at.offset for at in positions] == list(range(1000))
    await asyncio.to_thread(producer.close)
    records = KafkaLog(settings).read_range(CALLS, positions[0].partition, 0, 1000)
    assert names(records) == [str(n) for n in range(1000)]


class _DyingSession(Session):
    """Takes records, never acknowledges one, and is found dead when it has three."""

    def poll(self, timeout_s: float) -> bool:
        time.sleep(0.01)
        return len(self._owed) < 3


async def test_a_client_that_died_is_replaced_and_its_records_are_told(log_settings: LogSettings) -> None:
    """After a fatal error of librdkafka, what was outstanding gets NotAcknowledged and the next record goes through."""
    unreachable = log_settings.model_copy(update={"bootstrap_servers": _nowhere().bootstrap_servers})
    sessions = iter([_DyingSession(unreachable), Session(log_settings)])
    producer = EventProducer(log_settings, lambda _: next(sessions))
    outstanding = [asyncio.ensure_future(producer.publish(CALLS, b"g", started(name))) for name in "ab"]
    blocked = producer.produce(item("c"))
    outcomes = await asyncio.wait_for(asyncio.gather(*outstanding, return_exceptions=True), WAIT_S)
    assert [type(outcome) for outcome in outcomes] == [NotAcknowledged] * 2
    with pytest.raises(NotAcknowledged):
        blocked.result(WAIT_S)
    assert (await producer.publish(CALLS, b"g", started("next"))).offset == 0
    await asyncio.to_thread(producer.close)


async def test_a_cancelled_publisher_harms_nobody(kafka: KafkaLog) -> None:
    """Cancelling a publish leaves the producer working and the record, being sent, in the log."""
    producer = kafka.producer()
    task = asyncio.ensure_future(producer.publish(CALLS, b"g", started("cancelled")))
    await asyncio.sleep(0)
    task.cancel()
    at = await producer.publish(CALLS, b"g", started("next"))
    await asyncio.to_thread(producer.close)
    assert names(kafka.read_range(CALLS, at.partition, 0, at.offset + 1)) == ["cancelled", "next"]


def test_nothing_is_left_running_after_close(kafka: KafkaLog) -> None:
    """Producer, owner, reader, follower and lookup end their threads."""
    before = set(threading.enumerate())
    producer, owner, reader, lookup = (
        kafka.producer(),
        kafka.transactions("run"),
        kafka.reader([CALLS]),
        kafka.lookup(),
    )
    follower = Follower(kafka.reader([GROUPS]), print)
    follower.start()
    owner.open()
    for opened in (producer, owner, reader, lookup, owner, reader, lookup):
        opened.close()
    follower.stop()
    assert set(threading.enumerate()) <= before


# Groups and administration


def test_offsets_of_a_group_are_read(kafka: KafkaLog) -> None:
    """committed_offsets shows what a consumer group committed."""
    config = {"bootstrap.servers": kafka.settings.bootstrap_servers, "group.id": f"{kafka.settings.prefix}-g"}
    name = kafka.settings.catalogue().name(CALLS)
    group = Consumer(config)
    group.commit(offsets=[TopicPartition(name, 1, 7)], asynchronous=False)
    group.close()
    assert kafka.committed_offsets(config["group.id"], [CALLS], [0, 1]) == {(name, 0): None, (name, 1): 7}


def test_the_topics_are_what_the_catalogue_says(log_settings: LogSettings) -> None:
    """Freshly created topics show no difference, and describe counts what stands there."""
    assert diff_topics(log_settings) == []
    with contextlib.closing(EventProducer(log_settings)) as producer:
        producer.publish_now(REWARDS, b"g", started())
    states = {state.name.rpartition(".")[2]: state for state in describe_topics(log_settings)}
    assert len(states) == len(list(log_settings.catalogue()))
    assert (states["rewards"].records, states["calls"].records) == (1, 0)
    assert states["groups"].config["cleanup.policy"] == "compact"


def test_differences_are_lines_that_a_person_can_read(log_settings: LogSettings) -> None:
    """Another partition count is named for each topic; missing topics name the command that creates them."""
    grown = log_settings.model_copy(update={"partitions": 5})
    assert f"{grown.prefix}.calls: partitions is 2, the catalogue says 5" in diff_topics(grown)
    bare = log_settings.model_copy(update={"prefix": "never-created"})
    assert diff_topics(bare)[0] == "never-created.calls: missing; create it with `claw topics create`"


def test_two_may_create_the_topics_at_once(broker: str, request: pytest.FixtureRequest) -> None:
    """Concurrent create_topics both return when the topics are usable, and each topic is created by one of them."""
    settings = LogSettings(bootstrap_servers=broker, prefix=f"race{random.getrandbits(40):x}", partitions=2)
    created: list[list[str]] = []
    threads = [threading.Thread(target=lambda: created.append(create_topics(settings))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert sorted(itertools.chain(*created)) == sorted(
        settings.catalogue().name(topic) for topic in settings.catalogue()
    )


# Restarts


@pytest.mark.slow
def test_what_was_acknowledged_survives_the_death_of_the_broker(
    local_broker: LocalBroker, local_log: LogSettings
) -> None:
    """Across a kill -9 and a restart, facts, transactions and a follower go on; nothing acknowledged is lost."""
    log = KafkaLog(local_log.model_copy(update={"ack_timeout_ms": 60_000}))
    producer, owner, followed = log.producer(), log.transactions("run"), list[Record]()
    follower = Follower(log.reader([GROUPS]), followed.append)
    owner.open()
    follower.start()
    acknowledged: list[Position] = []
    committed: list[Position] = []
    stop = threading.Event()

    def publish() -> None:
        while not stop.is_set():
            acknowledged.append(producer.publish_now(CALLS, b"g", started(str(len(acknowledged)))))

    def commit() -> None:
        while not stop.is_set():
            committed.extend(owner.commit([item(str(len(committed)), topic=GROUPS)]))

    threads = [threading.Thread(target=work) for work in (publish, commit)]
    for thread in threads:
        thread.start()
    until(lambda: len(acknowledged) > 20 and len(committed) > 5)
    local_broker.kill()
    local_broker.start()
    facts, pool = len(acknowledged), len(committed)
    until(lambda: len(acknowledged) > facts + 20 and len(committed) > pool + 5)
    stop.set()
    for thread in threads:
        thread.join(WAIT_S)
    ends = log.end_offsets([CALLS])
    facts_read = names(log.read_range(CALLS, *_only_range(ends)))
    assert facts_read == [str(n) for n in range(len(acknowledged))]
    visible(log, committed[-1:])
    with contextlib.closing(log.reader([GROUPS])) as reader:
        assert names(list(reader.read_to_end())) == [str(n) for n in range(len(committed))]
    follower.wait_caught_up(WAIT_S)
    assert names(followed) == [str(n) for n in range(len(committed))]
    for opened in (producer, owner):
        opened.close()
    follower.stop()


def _only_range(ends: dict[Place, int]) -> tuple[int, int, int]:
    ((place, end),) = [(place, end) for place, end in ends.items() if end]
    return place[1], 0, end


def _begin_and_abandon(settings: LogSettings, transactional_id: str, name: str) -> RawProducer:
    """An owner that wrote a record and did not come to its commit."""
    raw = RawProducer({"bootstrap.servers": settings.bootstrap_servers, "transactional.id": transactional_id})
    raw.init_transactions(WAIT_S)
    raw.begin_transaction()
    torn = item(name, topic=BATCHES)
    raw.produce(settings.catalogue().name(BATCHES), key=torn.key, value=torn.value, partition=0)
    raw.flush(WAIT_S)
    return raw


def _poll_for(reader: Reader, count: int) -> list[Record]:
    found: list[Record] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < deadline:
        found += reader.poll(0.1)
    return found


def _nowhere(ack_timeout_ms: int = 1000) -> LogSettings:
    (port,) = free_ports(1)
    return LogSettings(
        bootstrap_servers=f"127.0.0.1:{port}",
        ack_timeout_ms=ack_timeout_ms,
        connect_timeout_s=1,
        commit_timeout_s=1,
        partitions=2,
    )


def test_a_member_that_closes_while_it_joins_leaves_in_silence(log_settings):
    """Its partitions come during the close, when the broker answers it nothing any more: no error of that is anybody's."""
    for number in range(8):
        member = KafkaLog(log_settings).membership(
            [CALLS], f"hasty{number}", on_revoked=lambda _: None, work_timeout_s=60
        )
        time.sleep(0.15 * number)
        member.close()


class _NeverClosed:
    """A client whose close does not return, as librdkafka's may not when partitions come meanwhile."""

    def memberid(self) -> str:
        return ""

    def close(self) -> None:
        threading.Event().wait()


def test_a_client_that_never_closes_keeps_nobody_longer_than_the_group_would(log_settings):
    """The process can end: the group puts the member out after the same time."""
    member = KafkaLog(log_settings).membership([CALLS], "stuck", on_revoked=lambda _: None, work_timeout_s=6)
    client, member._consumer = member._consumer, _NeverClosed()
    member._work_timeout_s = 0.2
    member.close()
    client.close()


def test_what_goes_wrong_while_partitions_are_given_up_is_the_closers(log_settings):
    """An error of whoever is told is raised by `close`."""

    def refuse(_):
        raise ZeroDivisionError

    member = KafkaLog(log_settings).membership([CALLS], "refusing", on_revoked=refuse, work_timeout_s=60)
    until(lambda: member.poll(0.1, 1) or member.places(), "partitions")
    with pytest.raises(ZeroDivisionError):
        member.close()
