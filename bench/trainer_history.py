"""The costs of reading a run's history to resume: `python -m bench.trainer --only history`.

`history_ratio`: CPU seconds of `Journal.open` over the events of so many batches, as the trainer resumes from its newest
checkpoint, over CPU seconds of decoding the same records and nothing else; the median of interleaved repeats.
"""

import statistics
import time
from collections.abc import Callable, Iterable

from claw_r1.eventlog.memory import MemoryLog
from claw_r1.eventlog.records import Outgoing, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import (
    BatchAssembled,
    BatchSkipped,
    BatchTrained,
    FactPosition,
    PlannedStep,
    PlannedTrajectory,
    WeightsPublished,
)
from claw_r1.schemas.topics import BATCHES, WEIGHTS
from claw_r1.trainer.plan.journal import Journal

RUN = "run"
REPEATS = 5
GROUPS, MEMBERS = 2, 4
METRICS = {f"metric_{number}": number / 7 for number in range(30)}


def measure(batches: int = 10_000) -> dict[str, float]:
    """The ratio, and both of its sides in CPU seconds."""
    records = [record for sequence in range(batches) for record in _records(sequence)]
    journal = Journal(MemoryLog(LogSettings(partitions=1)).transactions(RUN), lambda: records, RUN)
    newest_checkpoint = batches - 2
    sides = [
        (_cpu_s(lambda: journal.open(newest_checkpoint)), _cpu_s(lambda: _decode(records))) for _ in range(REPEATS)
    ]
    return {
        "history_ratio": round(statistics.median(reading / decoding for reading, decoding in sides), 3),
        "history_batches": batches,
        "history_reading_cpu_s": round(statistics.median(reading for reading, _ in sides), 3),
        "history_decoding_cpu_s": round(statistics.median(decoding for _, decoding in sides), 3),
    }


def _decode(records: Iterable[Record]) -> None:
    for record in records:
        record.event()


def _cpu_s(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _records(sequence: int) -> list[Record]:
    """Makes the records that one batch leaves in the log: its plan, its weights, itself, and a group that was skipped
    beside it."""
    head = envelope("bench", run_id=RUN)
    weights = WeightsPublished(
        envelope=head, model_id="m", run_id=RUN, version=sequence + 1, digest="0" * 64, bytes_total=1, manifest=()
    )
    trained = BatchTrained(
        envelope=head, run_id=RUN, sequence=sequence, version=sequence + 1, metrics=METRICS | {"reward": 0.5}
    )
    skipped = BatchSkipped(envelope=head, run_id=RUN, group_ids=(f"s{sequence}",), reason="too_stale")
    plan = BatchAssembled(
        envelope=head, run_id=RUN, sequence=sequence, version=sequence, spec="{}", seed=0, trajectories=_plan(sequence)
    )
    outgoing = [Outgoing.of(BATCHES, b"", event) for event in (plan, trained, skipped)] + [
        Outgoing.of(WEIGHTS, b"", weights)
    ]
    return [Record(each.topic.name, 0, sequence, 0, None, each.value) for each in outgoing]


def _plan(sequence: int) -> tuple[PlannedTrajectory, ...]:
    step = PlannedStep(
        call_id="c0",
        position=FactPosition(topic="claw.calls", partition=0, offset=sequence),
        digest="0" * 64,
        trained=True,
    )
    return tuple(
        PlannedTrajectory(
            group_id=f"g{sequence}-{group}", trajectory_id=f"t{member}", reward=0.5, advantage=0.5, steps=(step,)
        )
        for group in range(GROUPS)
        for member in range(MEMBERS)
    )
