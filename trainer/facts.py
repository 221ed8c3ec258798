"""From a plan to training rows: the planned calls are read from the facts by position, never from the pool.

Invariant: what is trained has the digest that was planned. A fact that is gone or has other bytes stops the run.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from datapool.assembly import call_tokens
from datapool.digests import call_digest
from datapool.edges import prompts
from datapool.sequences import CallTokens, Row, rows
from eventlog.records import Position, Record
from schemas.events import BatchAssembled, CallCaptured, PlannedStep, PlannedTrajectory
from trainer.errors import FactUnreadable


class Facts(Protocol):
    """`eventlog.reader.FactLookup`, or a fake."""

    def get(self, positions: Iterable[Position]) -> dict[Position, Record]:
        """Every record asked for. Raises HistoryCut."""


def rows_of(plan: BatchAssembled, facts: Facts) -> list[Row]:
    """Training rows of a plan; `Row.trajectory` is the index into `plan.trajectories`.

    Raises FactUnreadable, HistoryCut.
    """
    steps = [step for trajectory in plan.trajectories for step in trajectory.steps]
    records = facts.get({position_of(step) for step in steps})
    return [
        row
        for index, planned in enumerate(plan.trajectories)
        for row in rows(_calls(planned, records, plan.run_id), index)
    ]


def position_of(step: PlannedStep) -> Position:
    """Where the fact of a step lies."""
    return Position(step.position.topic, step.position.partition, step.position.offset)


def _calls(planned: PlannedTrajectory, records: Mapping[Position, Record], run_id: str) -> list[CallTokens]:
    """Trained calls in order. The others are read too, because a prompt may be an edge on one of them."""
    calls = {step.call_id: _call(step, records[position_of(step)]) for step in planned.steps}
    whole = prompts(calls)
    trained: list[CallTokens] = []
    for step in planned.steps:
        if not step.trained:
            continue
        call = calls[step.call_id]
        if step.call_id not in whole:
            raise FactUnreadable(f"call {step.call_id}: a base of its prompt is not planned with it, or has other ids")
        temperature = call.sampling.temperature
        trained.append(call_tokens(call, whole[step.call_id], run_id, temperature, step.advantage))
    return trained


def _call(step: PlannedStep, record: Record) -> CallCaptured:
    event = record.event()
    if not isinstance(event, CallCaptured) or call_digest(event) != step.digest:
        raise FactUnreadable(f"call {step.call_id}: the fact at {record.position} is not the planned one")
    return event
