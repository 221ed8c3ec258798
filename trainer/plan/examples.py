"""Training rows of a plan -> what the learner takes."""

from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datapool.batch.plan import groups_of
from datapool.batch.sequences import TrainingRow
from schemas.events import BatchAssembled
from trainer.learn.examples import Example, LearnerBatch
from trainer.plan.facts import TrainingBatch

POLICY_LOSS_ALONE = (1.0, 0.0, 1.0)
"""Weights of a token that the plan gives none: policy loss, no cross-entropy, and the reference KL that the run asks for."""


def learner_batch(batch: TrainingBatch) -> LearnerBatch:
    """The rows of a plan with everything that the plan says about them."""
    plan = batch.plan
    sizes = Counter(trajectory.group_id for trajectory in plan.trajectories)
    return LearnerBatch(
        examples_of(batch.rows, plan),
        version=plan.version,
        seed=plan.seed,
        sequence=plan.sequence,
        group_sizes=tuple(sizes[group_id] for group_id in groups_of(plan)),
    )


def examples_of(rows: Sequence[TrainingRow], plan: BatchAssembled) -> list[Example]:
    """One example per row; its advantages are the plan's. Scales are 1: the learner sets them."""
    groups = {group_id: index for index, group_id in enumerate(groups_of(plan))}
    first_responses = accumulate((len(row.responses) for row in rows), initial=0)
    return [
        _example(
            row, first, plan.trajectories[row.trajectory].advantage, groups[plan.trajectories[row.trajectory].group_id]
        )
        for row, first in zip(rows, first_responses, strict=False)
    ]


def _example(row: TrainingRow, first_response: int, advantage: float, group: int) -> Example:
    at = np.flatnonzero(np.frombuffer(row.mask, dtype=np.uint8))
    n = len(at)
    own = np.full(n, advantage, dtype=np.float32) if row.advantages is None else _at(row.advantages, np.float32, at)
    starts = np.array([start for start, _ in row.responses])
    return Example(
        ids=np.frombuffer(row.ids, dtype=np.int32),
        at=at,
        behaviour=_at(row.logprobs, np.float32, at),
        temperatures=_at(row.temperatures, np.float32, at),
        advantages=own,
        versions=_at(row.versions, np.int64, at),
        responses=first_response + np.searchsorted(starts, at, side="right") - 1,
        trajectories=np.full(n, row.trajectory, dtype=np.int64),
        rewards=np.zeros(n, dtype=np.float32),
        weights=np.tile(np.array(POLICY_LOSS_ALONE, dtype=np.float32), (n, 1)),
        scale=np.ones(n, dtype=np.float32),
        group=group,
    )


def _at(values: "array[Any]", dtype: type, at: NDArray[Any]) -> NDArray[Any]:  # Any: numbers of that dtype
    chosen: NDArray[Any] = np.frombuffer(values, dtype=dtype)[at]
    return chosen
