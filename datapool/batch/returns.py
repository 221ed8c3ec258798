"""What a trajectory earned under a spec's weights. The pool keeps every slot; the spec decides how much each counts."""

import math
from collections.abc import Iterable, Sequence

from datapool.batch.advantages import Return
from datapool.batch.spec import BatchSpec
from datapool.fold.project import winners
from schemas.events import RewardSlot, StepRecord, TrajectoryRecord


def trajectory_return(record: TrajectoryRecord, steps: Sequence[StepRecord], spec: BatchSpec) -> Return | None:
    """Total, rewards per step and outcome; None where no reward that counts was given. steps: captured, in order."""
    if not spec.reward_weights:
        outcome: float | None = record.outcome
        step_rewards = [step.reward_total for step in steps]
        total = record.return_total
    else:
        outcome = weighted((slot for slot in record.rewards if slot.step_index is None), spec)
        step_rewards = [weighted(winners(step.rewards, ()), spec) for step in steps]
        rewards = [reward for reward in (outcome, *step_rewards) if reward is not None]
        total = math.fsum(rewards) if rewards else None
    if total is None:
        return None
    return Return(float(total), tuple(reward or 0.0 for reward in step_rewards), outcome or 0.0)


def weighted(slots: Iterable[RewardSlot], spec: BatchSpec) -> float | None:
    """Weighted sum of the slots whose weight is not 0; None where there is no such slot."""
    weights = [(spec.weight(slot.source, slot.name), slot.value) for slot in slots]
    terms = [weight * value for weight, value in weights if weight != 0]
    return math.fsum(terms) if terms else None
