"""What a trajectory earned under a spec's weights. The pool keeps every slot; how much each counts is the spec's word."""

import math
from collections.abc import Iterable, Sequence

from datapool.batch.advantages import Return
from datapool.batch.spec import BatchSpec
from datapool.fold.project import winners
from schemas.events import RewardSlot, StepRecord, TrajectoryRecord


def judged(record: TrajectoryRecord, steps: Sequence[StepRecord], spec: BatchSpec) -> Return | None:
    """Return, rewards per step and outcome; None where nobody gave a reward that counts. steps: captured, in order."""
    if not spec.reward_weights:
        outcome: float | None = record.outcome
        of_steps = [step.reward_total for step in steps]
        total = record.return_total
    else:
        outcome = weighted((slot for slot in record.rewards if slot.step_index is None), spec)
        of_steps = [weighted(winners(step.rewards, ()), spec) for step in steps]
        given = [value for value in (outcome, *of_steps) if value is not None]
        total = math.fsum(given) if given else None
    if total is None:
        return None
    return Return(float(total), tuple(value or 0.0 for value in of_steps), outcome or 0.0)


def weighted(slots: Iterable[RewardSlot], spec: BatchSpec) -> float | None:
    """Weighted sum of the slots that count, or None."""
    parts = [(spec.weight(slot.source, slot.name), slot.value) for slot in slots]
    counted = [weight * value for weight, value in parts if weight != 0]
    return math.fsum(counted) if counted else None
