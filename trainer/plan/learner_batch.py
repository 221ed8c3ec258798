"""Training rows of a plan -> what the learner takes."""

from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from claw_r1.datapool.batch.plan import groups_of
from claw_r1.datapool.batch.sequences import TrainingRow
from claw_r1.schemas.events import BatchAssembled
from claw_r1.trainer.algorithms.gae import token_rewards
from claw_r1.trainer.learn.examples import Example, LearnerBatch, by_trajectory, column, with_column
from claw_r1.trainer.plan.episode_metrics import environment_index, environments_of
from claw_r1.trainer.plan.training_batch import TrainingBatch

POLICY_LOSS_ALONE = (1.0, 0.0, 1.0)
"""Weights of a token that the plan gives none: policy loss, no cross-entropy, and the reference KL that the
run asks for."""


def learner_batch(batch: TrainingBatch) -> LearnerBatch:
    """The rows of a plan with everything that the plan says about them."""
    plan = batch.plan
    sizes = Counter(trajectory.group_id for trajectory in plan.trajectories)
    environments = environments_of(plan)
    return LearnerBatch(
        examples_of(batch.rows, plan, environments),
        version=plan.version,
        seed=plan.seed,
        sequence=plan.sequence,
        group_sizes=tuple(sizes[group_id] for group_id in groups_of(plan)),
        environments=environments,
    )


def examples_of(rows: Sequence[TrainingRow], plan: BatchAssembled, environments: Sequence[str] = ()) -> list[Example]:
    """One example per row; its advantages are the plan's. Scales are 1: the learner sets them."""
    groups = {group_id: index for index, group_id in enumerate(groups_of(plan))}
    calls = [(index, step) for index, planned in enumerate(plan.trajectories) for step in planned.steps]
    numbers = {(index, step.call_id): number for number, (index, step) in enumerate(calls)}
    examples: list[Example] = []
    for row in rows:
        planned = plan.trajectories[row.trajectory]
        of_row = [numbers[row.trajectory, call_id] for call_id in row.call_ids]
        weights = [calls[number][1].weights or POLICY_LOSS_ALONE for number in of_row]
        index = environment_index(planned.figures, environments)
        examples.append(_example(row, of_row, weights, planned.advantage, groups[planned.group_id], index))
    rewards: dict[int, dict[int, float]] = defaultdict(dict)
    for number, (index, step) in enumerate(calls):
        rewards[index][number] = step.reward
    return _rewarded(examples, rewards)


def _rewarded(examples: Sequence[Example], rewards: Mapping[int, Mapping[int, float]]) -> list[Example]:
    """rewards: by trajectory, by number of the call."""
    if not examples or not any(reward for of_calls in rewards.values() for reward in of_calls.values()):
        return list(examples)
    responses, at_tokens = column(examples, "responses"), np.zeros(sum(len(each.at) for each in examples), np.float32)
    for trajectory, tokens in by_trajectory(examples):
        at_tokens[tokens] = token_rewards(rewards[trajectory], responses[tokens].tolist())
    return with_column(examples, "rewards", at_tokens)


def _example(
    row: TrainingRow,
    calls: Sequence[int],
    weights: Sequence[Sequence[float]],
    advantage: float,
    group: int,
    environment: int,
) -> Example:
    """calls, weights: of each call of the row, its number within the batch and what its losses weigh."""
    at = np.flatnonzero(np.frombuffer(row.mask, dtype=np.uint8))
    n = len(at)
    own = np.full(n, advantage, dtype=np.float32) if row.advantages is None else _at(row.advantages, np.float32, at)
    place = np.searchsorted(np.array([start for start, _ in row.responses]), at, side="right") - 1
    return Example(
        ids=np.frombuffer(row.ids, dtype=np.int32),
        at=at,
        behaviour=_at(row.logprobs, np.float32, at),
        temperatures=_at(row.temperatures, np.float32, at),
        advantages=own,
        versions=_at(row.versions, np.int64, at),
        responses=np.array(calls, dtype=np.int64)[place],
        trajectories=np.full(n, row.trajectory, dtype=np.int64),
        rewards=np.zeros(n, dtype=np.float32),
        weights=np.array(weights, dtype=np.float32)[place],
        scale=np.ones(n, dtype=np.float32),
        group=group,
        environment=environment,
    )


def _at(values: "array[Any]", dtype: type, at: NDArray[Any]) -> NDArray[Any]:  # Any: numbers of that dtype
    chosen: NDArray[Any] = np.frombuffer(values, dtype=dtype)[at]
    return chosen
