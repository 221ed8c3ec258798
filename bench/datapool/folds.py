"""The folds alone, and under Faust: `bench.datapool` says what is measured."""

import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.episodes import load, outgoing, publish, records
from bench.medians import seconds_of
from bench.processes import Measured, environment_of, new_log, running
from bench.report import Figures
from claw_r1.datapool.fold.fold import fold
from claw_r1.datapool.fold.state import GroupState
from claw_r1.eventlog.kafka.admin import end_offsets
from claw_r1.eventlog.kafka.reader import LogReader
from claw_r1.eventlog.records import Place, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.codec import decode
from claw_r1.schemas.events import FactPosition, StreamPosition
from claw_r1.schemas.topics import CALLS, POSITIONS, REWARDS
from claw_r1.streams.partition.state import PartitionState

GROUPS_FOLDED = 48
FLUSH_FACTS = 500
REPEATS = 5
FOLD_TIMEOUT_S = 240.0


def folds() -> Figures:
    """Facts per CPU-second, medians."""
    facts = records(load(GROUPS_FOLDED))
    return {
        "decode_facts_per_cpu_s": _rate(facts, _decode),
        "state_facts_per_cpu_s": _rate(facts, _state),
        "fold_facts_per_cpu_s": _rate(facts, _fold),
    }


def _rate(facts: list[Record], work: Callable[[list[Record]], None]) -> float:
    spent_s = []
    for _ in range(REPEATS):
        gc.collect()
        spent_s.append(seconds_of(lambda: work(facts)))
    return len(facts) / statistics.median(spent_s)


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
            state.take_batch(0)
    state.take_batch(0)


def faust(groups: int) -> Figures:
    """Facts per CPU-second of a worker process: a backlog, so that transactions are as large as the settings let them be."""
    with new_log() as log, tempfile.TemporaryDirectory() as folder:
        facts = list(load(groups))
        publish(log, map(outgoing, facts))
        views = {"CLAW_LOG_VIEWS_DIR": str(Path(folder) / "views")}
        with streams_worker(log, Path(folder) / "streams.log", **views) as worker:
            cpu_before, began = worker.cpu_s(), time.monotonic()
            wait_folded(log, end_offsets(log, [CALLS, REWARDS]))
            return {
                "faust_facts_per_cpu_s": len(facts) / (worker.cpu_s() - cpu_before),
                "faust_facts_per_s": len(facts) / (time.monotonic() - began),
                "faust_facts": len(facts),
            }


@contextmanager
def streams_worker(log: LogSettings, said: Path, **environment: str) -> Iterator[Measured]:
    """A worker that decides nothing."""
    settings = {**environment_of(log), "CLAW_STREAMS_REACTORS_ENABLED": "false", **environment}
    with running("claw_r1.streams", ready="streams_assigned", log=said, **settings) as worker:
        yield worker


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
