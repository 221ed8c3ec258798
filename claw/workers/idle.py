"""The shares of the time in which engines and trainer stood idle, and the reasons: which of the two to add to. Pure.

Engines wait for calls, and stand still while weights change; the trainer waits for a batch of ready groups.
"""

from collections.abc import Sequence
from typing import TypedDict

from claw_r1.datapool.runs import trained_us
from claw_r1.schemas.events import BatchTrained, WorkerReported

ENGINE = ("serving", "idle", "paused")
NOTABLE = 0.2
"""The idle share below which an engine or trainer counts as busy."""
APART = 0.1


class IdleShares(TypedDict):
    """Shares of the time, which add up to 1; None where there is too little to tell."""

    engines: dict[str, float] | None
    """serving, idle, paused"""
    trainer: dict[str, float] | None
    """training, waiting; other: plans, snapshots, checkpoints, evaluations that it waited for"""
    advice: str | None


def of_last_run(batches: Sequence[BatchTrained]) -> list[BatchTrained]:
    """Returns the batches of the run that trained last, in their order. batches: of several partitions, one after the other."""
    if not batches:
        return []
    last = max(batches, key=trained_us)
    return [batch for batch in batches if batch.run_id == last.run_id]


def idle_shares(reports: Sequence[WorkerReported], batches: Sequence[BatchTrained]) -> IdleShares:
    """Computes the shares from reports in order of their time, and from batches of one run in theirs.

    Where batches span some time, only the reports of that time count: engines also idle before a run and after it.
    """
    if len(batches) > 1:
        first, last = batches[0].envelope.occurred_at_us, batches[-1].envelope.occurred_at_us
        reports = [report for report in reports if first <= report.envelope.occurred_at_us <= last] or reports
    engines, trainer = engine_time(reports), trainer_time(batches)
    return IdleShares(engines=engines, trainer=trainer, advice=advice(engines, trainer))


def engine_time(reports: Sequence[WorkerReported]) -> dict[str, float] | None:
    """All engines together, from the growth of their seconds; what one did before a restart is not seen."""
    spent = dict.fromkeys(ENGINE, 0.0)
    latest: dict[str, WorkerReported] = {}
    for report in reports:
        before = latest.get(report.worker_id, report)
        latest[report.worker_id] = report
        growth = {name: report.seconds.get(name, 0.0) - before.seconds.get(name, 0.0) for name in ENGINE}
        if min(growth.values()) >= 0:
            spent = {name: spent[name] + growth[name] for name in ENGINE}
    total = sum(spent.values())
    return {name: seconds / total for name, seconds in spent.items()} if total else None


def trainer_time(batches: Sequence[BatchTrained]) -> dict[str, float] | None:
    """From one trained batch to the last: what was waited for before the first is the start of the run."""
    waiting, training = (sum(each.metrics.get(name, 0.0) for each in batches[1:]) for name in ("wait_s", "train_s"))
    if not waiting + training:
        return None
    elapsed = (batches[-1].envelope.occurred_at_us - batches[0].envelope.occurred_at_us) / 1e6
    other = max(elapsed - waiting - training, 0.0)
    total = waiting + training + other
    return {"training": training / total, "waiting": waiting / total, "other": other / total}


def advice(engines: dict[str, float] | None, trainer: dict[str, float] | None) -> str | None:
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
