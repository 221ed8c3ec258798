"""The folds alone, and under Faust: facts per CPU-second of the process.

`decode`: wire bytes to event. `state`: decode and fold. `fold`: all that a worker does but Kafka: decode, fold, project
what changed once per flush of 500 facts, encode the rows. `faust`: `python -m claw_r1.streams` on a real broker, fenced, its rows in
files, from the first fact it sees to the position of the last one in the log. Facts: `episodes.py`, records of 512 + 128 tokens.
"""

import gc
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from bench.episodes import load, outgoing, publish, records
from bench.measured_process import Measured, running
from claw_r1.claw.local.broker import resolve_broker
from claw_r1.datapool.fold.fold import fold
from claw_r1.datapool.fold.state import GroupState
from claw_r1.eventlog.kafka.admin import create_topics, end_offsets
from claw_r1.eventlog.kafka.reader import LogReader
from claw_r1.eventlog.records import Place, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.codec import decode
from claw_r1.schemas.events import Event, FactPosition, StreamPosition
from claw_r1.schemas.topics import CALLS, POSITIONS, REWARDS
from claw_r1.streams.partition.state import PartitionState

GROUPS_FOLDED = 48
GROUPS_STREAMED = 160
FLUSH_FACTS = 500
REPEATS = 5
FOLD_TIMEOUT_S = 240.0
PARTITIONS = 8
Figures = dict[str, float]


def folds() -> Figures:
    """Facts per CPU-second, medians."""
    facts = records(load(GROUPS_FOLDED))
    return {
        "decode_facts_per_cpu_s": _rate(facts, _decode),
        "state_facts_per_cpu_s": _rate(facts, _state),
        "fold_facts_per_cpu_s": _rate(facts, _fold),
    }


def _rate(facts: list[Record], work: Callable[[list[Record]], None]) -> float:
    spent = []
    for _ in range(REPEATS):
        gc.collect()
        began = time.process_time()
        work(facts)
        spent.append(time.process_time() - began)
    return round(len(facts) / statistics.median(spent))


def _decode(facts: list[Record]) -> None:
    for record in facts:
        decode(record.value)


def _state(facts: list[Record]) -> None:
    groups: dict[str, GroupState] = {}
    for record in facts:
        event = record.event()
        group_id: str = event.group_id  # type: ignore[union-attr]  # facts have a group
        position = FactPosition(topic=record.topic, partition=record.partition, offset=record.offset)
        groups[group_id] = fold(groups.get(group_id), event, position)


def _fold(facts: list[Record]) -> None:
    state = PartitionState(0, 1)
    for number, record in enumerate(facts, 1):
        state.apply(record)
        if number % FLUSH_FACTS == 0:
            state.snapshot(0)
    state.snapshot(0)


def faust() -> Figures:
    """Facts per CPU-second of a worker process, on a broker that is found or started."""
    with resolve_broker() as broker, tempfile.TemporaryDirectory() as folder:
        prefix = f"bench{uuid.uuid4().hex[:8]}"
        settings = LogSettings(bootstrap_servers=broker.bootstrap, prefix=prefix, partitions=PARTITIONS)
        create_topics(settings)
        facts = load(GROUPS_STREAMED)
        log = Path(folder) / "streams.log"
        environment = {
            "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap,
            "CLAW_LOG_PREFIX": prefix,
            "CLAW_LOG_VIEWS_DIR": str(Path(folder) / "views"),
            "CLAW_LOG_PARTITIONS": str(PARTITIONS),
            "CLAW_STREAMS_REACTORS_ENABLED": "false",
        }
        publish(settings, map(outgoing, facts))
        with running("claw_r1.streams", ready="streams_assigned", log=log, **environment) as worker:
            return _streamed(settings, facts, worker)


def _streamed(settings: LogSettings, facts: list[Event], worker: Measured) -> Figures:
    """A backlog, so that transactions are as large as the settings let them be."""
    cpu_before, began = worker.cpu_s(), time.monotonic()
    wait_folded(settings, end_offsets(settings, [CALLS, REWARDS]))
    return {
        "faust_facts_per_cpu_s": round(len(facts) / (worker.cpu_s() - cpu_before)),
        "faust_facts_per_s": round(len(facts) / (time.monotonic() - began)),
        "faust_facts": len(facts),
    }


def wait_folded(settings: LogSettings, ends: Mapping[Place, int]) -> None:
    """Until the positions in the log are at `ends`."""
    deadline = time.monotonic() + FOLD_TIMEOUT_S
    at: dict[Place, int] = {}
    with LogReader(settings, [POSITIONS]) as reader:
        while any(at.get(place, 0) < end for place, end in ends.items()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not folded within {FOLD_TIMEOUT_S} s: {at} of {ends}")
            for record in reader.poll(0.2):
                position = record.event()
                assert isinstance(position, StreamPosition)  # nothing else stands on that topic
                at |= {(topic, position.partition): offset for topic, offset in position.offsets.items()}
