"""What the broker tests of the streams share: facts in, workers as processes, the pool out, the oracle beside it."""

import itertools
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from claw_r1.eventlog.kafka.admin import end_offsets
from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.kafka.reader import LogReader
from claw_r1.eventlog.records import Outgoing, Position, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.codec import decode, encode
from claw_r1.schemas.errors import UndecodableRecord
from claw_r1.schemas.events import Event, FactPosition, GroupClosed, StepRecord, TrajectoryAbandoned
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS, DEAD_LETTERS, GROUPS, POSITIONS, REWARDS, STEPS, TRAJECTORIES, Topic
from claw_r1.streams.standby import POOL, opened, read_on
from tests import children, facts, oracle
from tests.patience import PATIENCE_S, until
from tests.soak import SOAK

ROOT = Path(__file__).parents[2]
ROUNDS = SOAK or 1
"""How often each trouble comes: once in `make test`, N times in `make soak N=100`."""
FAST = {
    "CLAW_STREAMS_SESSION_TIMEOUT_S": "6",
    "CLAW_STREAMS_HEARTBEAT_INTERVAL_S": "1",
    "CLAW_STREAMS_FLUSH_INTERVAL_S": "0.05",
    "CLAW_STREAMS_TRAJECTORY_IDLE_TIMEOUT_S": "1e10",  # facts of tests are of 1970
}


def outgoing(event: Event) -> Outgoing:
    topic = REWARDS if isinstance(event, facts.ON_REWARDS) else CALLS
    return Outgoing.of(topic, group_key(event.group_id), event)


@contextmanager
def producing(settings: LogSettings) -> Iterator[EventProducer]:
    producer = EventProducer(settings)
    try:
        yield producer
    finally:
        producer.close()


def publish(settings: LogSettings, items: Iterable[Outgoing]) -> list[Position]:
    """Where they are, when all are acknowledged."""
    with producing(settings) as producer:
        return [future.result() for future in [producer.produce(item) for item in items]]


Letters = Counter[tuple[Position, str]]
"""Dead letters by the place of their record and their reason."""


def poisoned(settings: LogSettings, group: str) -> Letters:
    """Publishes every kind of poison under the key of a group; the letters that there must be of it, one each."""
    good = encode(facts.call(group, "t", "c"))
    kinds = [
        ("bad_magic", b"\x01nonsense"),
        ("unknown_schema_id", b"\x00\x00\x00\x00\x07abc"),
        ("malformed_datum", good[:50]),
        ("empty_value", b""),
        ("empty_value", None),
        ("wrong_type", encode(StepRecord(group_id=group, trajectory_id="t", call_id="c"))),
        ("wrong_key", encode(facts.call("another", "t", "c"))),
        ("reward_not_finite", encode(facts.reward(group, "t", float("inf")))),
    ]
    places = publish(settings, [Outgoing(topic=CALLS, key=group_key(group), value=value) for _, value in kinds])
    return Counter(zip(places, (reason for reason, _ in kinds), strict=True))


def episode(group: str, trajectory: str, calls: int = 3) -> list[Event]:
    """What a well-behaved agent leaves behind."""
    steps = [facts.call(group, trajectory, f"{trajectory}-{n}", received_us=n) for n in range(calls)]
    return [
        *steps,
        facts.reward(group, trajectory, 0.5, step_index=0, name="step"),
        facts.completed(group, trajectory, calls=calls, rewards=1, reward=1.0),
    ]


def records(settings: LogSettings, *topics: Topic) -> list[Record]:
    """Everything on these topics, what a commit has just been answered of among it: Kafka writes its markers after that."""
    with LogReader(settings, topics) as reader:
        return list(reader.read_written())


def pool(settings: LogSettings) -> oracle.PoolBytes:
    """The latest value per key, tombstones removed."""
    catalogue = settings.catalogue()
    latest = {
        (catalogue.topic(record.topic).name, record.key): record.value
        for record in records(settings, STEPS, TRAJECTORIES, GROUPS)
    }
    return {key: value for key, value in latest.items() if value is not None}


def decoded(settings: LogSettings) -> list[Event]:
    """All records of the pool."""
    return [decode(value) for value in pool(settings).values()]


def facts_in_log(settings: LogSettings) -> list[tuple[Event, FactPosition]]:
    found = []
    for record in records(settings, CALLS, REWARDS):
        try:
            event = record.event()
        except UndecodableRecord:
            continue
        if not oracle.sound(event) or record.key != group_key(event.group_id):
            continue
        found.append((event, FactPosition(topic=record.topic, partition=record.partition, offset=record.offset)))
    return found


def expected(settings: LogSettings) -> oracle.PoolBytes:
    return oracle.pool_of(facts_in_log(settings))


def letters(settings: LogSettings) -> list[Record]:
    return records(settings, DEAD_LETTERS)


def buried(settings: LogSettings) -> Letters:
    """The dead letters that there are."""
    told = [{name: value.decode() for name, value in letter.headers} for letter in letters(settings)]
    return Counter(
        (
            Position(one["claw_source_topic"], int(one["claw_source_partition"]), int(one["claw_source_offset"])),
            one["claw_reason"],
        )
        for one in told
    )


def decisions(settings: LogSettings) -> list[TrajectoryAbandoned | GroupClosed]:
    return [event for event, _ in facts_in_log(settings) if isinstance(event, TrajectoryAbandoned | GroupClosed)]


def wait_for(what: str, holds: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    """`until`, with rests between two looks: most of them read topics to their end."""
    until(holds, what, step=lambda: time.sleep(0.2), patience_s=patience_s)


def folded_up_to(settings: LogSettings, ends: Mapping[tuple[str, int], int]) -> bool:
    """Whether the pool's positions are at or past these offsets of the fact topics."""
    offsets = {record.partition: record.event().offsets for record in records(settings, POSITIONS)}
    return all(offsets.get(partition, {}).get(topic, 0) >= end for (topic, partition), end in ends.items() if end)


def wait_for_oracle(settings: LogSettings, patience_s: float = PATIENCE_S) -> None:
    """The pool catches up with the facts, and is what the oracle makes of them, byte for byte."""
    ends = end_offsets(settings, [CALLS, REWARDS])
    wait_for("everything folded", lambda: folded_up_to(settings, ends), patience_s)
    want, have = expected(settings), pool(settings)
    assert want, "no facts, nothing to compare"
    assert have.keys() == want.keys()
    assert {key for key in want if have[key] != want[key]} == set()


def whole(settings: LogSettings, letters: Letters | None = None) -> None:
    """The invariant: the pool is what the oracle says, and there is one dead letter for each poison record, and no other."""
    wait_for_oracle(settings)
    assert buried(settings) == (letters or Counter())


def folded(settings: LogSettings) -> int:
    """Facts that the pool's positions are past."""
    latest = {record.partition: record.event().offsets for record in records(settings, POSITIONS)}
    return sum(offset for offsets in latest.values() for offset in offsets.values())


def wait_for_more(settings: LogSettings) -> None:
    """New facts are folded and committed, by whoever owns them now."""
    before = folded(settings)
    wait_for("new positions", lambda: folded(settings) > before)


def same_from_files(settings: LogSettings, folder: Path) -> int:
    """The rows that files and the log behind them have are those of the log; how many the log has of all partitions."""
    numbers = range(settings.partitions)
    copies = opened(settings.model_copy(update={"views_dir": folder}), numbers), opened(settings, numbers)
    read = [read_on(settings, each) for each in copies]
    for number in numbers:
        for topic in POOL:
            assert len({tuple(sorted(each[number].store.topic(topic.name))) for each in copies}) == 1
    for copy in [*copies[0].values(), *copies[1].values()]:
        copy.close()
    assert read[0] < read[1]
    return read[1]


def load(groups=12, members=4, prefix="g"):
    """Facts of many groups, interleaved as concurrent agents leave them."""
    runs = [episode(f"{prefix}{g}", f"t{m}") for g, m in itertools.product(range(groups), range(members))]
    return [event for turn in zip(*runs, strict=True) for event in turn]


class Traffic:
    """Publishes the facts of ever new groups in a thread, at a steady pace, until it is enough."""

    def __init__(self, settings, per_second=200):
        self._settings, self._pause_s = settings, 1 / per_second
        self._enough = threading.Event()
        self._error = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            with producing(self._settings) as producer:
                for number in itertools.count():
                    if self._enough.is_set():
                        return
                    for event in load(groups=4, prefix=f"traffic{number}-"):
                        producer.produce(outgoing(event)).result()
                        time.sleep(self._pause_s)
        except BaseException as error:
            self._error = error
            raise

    @property
    def flowing(self):
        return self._thread.is_alive()

    def done(self):
        """Every group that was begun is complete and acknowledged."""
        self._enough.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        assert self._error is None, self._error


class WorkerProcess:
    """`python -m claw_r1.streams` as a user runs it, or another module in its place."""

    def __init__(
        self, settings: LogSettings, log_path: Path, *arguments: str, module: str = "claw_r1.streams", **env: str
    ) -> None:
        self.log_path = log_path
        environment = {
            **os.environ,
            **FAST,
            "KAFKA_BOOTSTRAP_SERVERS": settings.bootstrap_servers,
            "CLAW_LOG_PREFIX": settings.prefix,
            "CLAW_LOG_PARTITIONS": str(settings.partitions),
            "CLAW_LOG_GENERATION": str(settings.generation),
            **env,
        }
        with log_path.open("ab") as out:
            self._process = children.start(
                [sys.executable, "-m", module, *arguments], cwd=ROOT, env=environment, stdout=out, stderr=out
            )

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, timeout_s: float = 20.0) -> int:
        return self._process.wait(timeout_s)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def log(self) -> str:
        return self.log_path.read_text()

    def said(self, event: str) -> list[dict[str, object]]:
        """Its log lines of one event name."""
        lines = [line for line in self.log().splitlines() if f'"event": "{event}"' in line]
        return [json.loads(line) for line in lines if line.endswith("}")]  # the last one may be half written

    def stop(self) -> int:
        """Asked politely, then not."""
        if self.running:
            self.signal(signal.SIGCONT)
        return children.end(self._process, 20.0)
