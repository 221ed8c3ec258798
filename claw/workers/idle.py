"""Which share of the time engines and trainer stood idle, and what they waited for: which of the two to add to. Pure.

Engines wait for calls, and stand still while weights change; the trainer waits for a batch of ready groups.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import TypedDict

from schemas.events import BatchTrained, WorkerReported

NOTABLE = 0.2
"""Who is idle for less than this share of the time is busy."""
APART = 0.1


class EngineTime(TypedDict):
    """Shares of the engines' time; together 1."""

    serving: float
    idle: float
    paused: float


class TrainerTime(TypedDict):
    """Shares of the trainer's time; together 1. `other`: snapshots, checkpoints, evaluations that it waited for."""

    training: float
    waiting: float
    other: float


class IdleShares(TypedDict):
    """None where there is too little to tell."""

    engines: EngineTime | None
    trainer: TrainerTime | None
    advice: str | None


def idle_shares(reports: Sequence[WorkerReported], batches: Sequence[BatchTrained]) -> IdleShares:
    """Of reports in order of their time, and of batches of one run in theirs.

    Where batches span some time, only the reports of that time count: engines also idle before a run and after it.
    """
    if len(batches) > 1:
        first, last = batches[0].envelope.occurred_at_us, batches[-1].envelope.occurred_at_us
        reports = [report for report in reports if first <= report.envelope.occurred_at_us <= last] or reports
    engines, trainer = engine_time(reports), trainer_time(batches)
    return IdleShares(engines=engines, trainer=trainer, advice=advice(engines, trainer))


def engine_time(reports: Sequence[WorkerReported]) -> EngineTime | None:
    """All engines together, from the growth of their seconds; what one did before a restart is not seen."""
    by_worker: dict[str, list[WorkerReported]] = {}
    for report in reports:
        by_worker.setdefault(report.worker_id, []).append(report)
    spent = EngineTime(serving=0.0, idle=0.0, paused=0.0)
    for own in by_worker.values():
        for before, after in pairwise(own):
            growth = {name: after.seconds.get(name, 0.0) - before.seconds.get(name, 0.0) for name in spent}
            if min(growth.values()) >= 0:
                spent = EngineTime(
                    serving=spent["serving"] + growth["serving"],
                    idle=spent["idle"] + growth["idle"],
                    paused=spent["paused"] + growth["paused"],
                )
    total = spent["serving"] + spent["idle"] + spent["paused"]
    if not total:
        return None
    return EngineTime(serving=spent["serving"] / total, idle=spent["idle"] / total, paused=spent["paused"] / total)


def trainer_time(batches: Sequence[BatchTrained]) -> TrainerTime | None:
    """From one trained batch to the last: what was waited for before the first is the start of the run."""
    if len(batches) < 2:
        return None
    total = (batches[-1].envelope.occurred_at_us - batches[0].envelope.occurred_at_us) / 1e6
    waiting, training = (sum(each.metrics.get(name, 0.0) for each in batches[1:]) for name in ("wait_s", "train_s"))
    total = max(total, waiting + training)
    if not total:
        return None
    return TrainerTime(
        training=training / total, waiting=waiting / total, other=max(0.0, 1 - (training + waiting) / total)
    )


def advice(engines: EngineTime | None, trainer: TrainerTime | None) -> str | None:
    """One sentence: which of the two to add to."""
    if engines is None or trainer is None:
        return None
    idle, waiting = engines["idle"], trainer["waiting"]
    figures = f"engines were idle {idle:.0%} of the time, the trainer waited {waiting:.0%}"
    if max(idle, waiting) < NOTABLE:
        return f"{figures}: both are busy, and adding to either helps little without the other"
    if min(idle, waiting) >= NOTABLE and abs(idle - waiting) < APART:
        return f"{figures}: they wait for each other in turn; a higher staleness_max or more agents let both work"
    return f"{figures}: " + ("the trainer is what to add to" if idle > waiting else "workers are what to add")
