"""Returns of a batch -> advantages, and what else an estimator decides. A baseline is over trajectories, never over calls
or training rows.

Pure Python: batches are small, and a plan freezes the result, so that no device rounds it differently.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, NamedTuple

from claw_r1.schemas.evaluation import ROUNDING

EPSILON = 1e-4
ROUNDING_AT_0 = 1e-12
"""`ROUNDING` where rewards cancel out: 0.1 + 0.2 - 0.3 is 5.6e-17."""


class CallState(NamedTuple):
    """The state that a call was made in: equal prompts are one state; else calls of one line are compared at one depth
    (`anchor_states.py`)."""

    prompt_id: str
    line: str
    depth: int


@dataclass(frozen=True, slots=True)
class Return:
    """The rewards of a trajectory, weights applied: one reward per captured call in order (0 where none), and the
    rest."""

    total: float
    steps: tuple[float, ...] = ()
    outcome: float = 0.0
    states: tuple[CallState | None, ...] = ()
    """The state of each call, where the estimator compares by state; None: it is compared with nothing."""


@dataclass(frozen=True, slots=True)
class Advantage:
    """The advantage of a trajectory, and of each of its calls where they differ (None: each
    has the trajectory's)."""

    whole: float
    steps: tuple[float, ...] | None = None


ReturnGroups = Sequence[Sequence[Return]]
"""Groups of trajectories."""
Advantages = Callable[[ReturnGroups], list[list[Advantage]]]
"""Same shape out as in."""


def are_equal(returns: Sequence[float]) -> bool:
    """Returns whether no two of them differ by more than `ROUNDING`. returns: one at least."""
    return math.isclose(max(returns), min(returns), rel_tol=ROUNDING, abs_tol=ROUNDING_AT_0)


def grpo(returns: Sequence[float]) -> list[float]:
    """(R - mean) / (std + 1e-4) with the sample deviation (ddof 1); all 0 where no two returns differ.

    DeepSeekMath, arXiv 2402.03300; ddof and epsilon as in TRL.
    """
    if len(returns) < 2 or are_equal(returns):
        return [0.0] * len(returns)
    mean, scale = statistics.fmean(returns), statistics.stdev(returns) + EPSILON
    return [(value - mean) / scale for value in returns]


def dr_grpo(returns: Sequence[float]) -> list[float]:
    """R - mean, without the scale; all exactly 0 where no two returns differ, whose mean may be rounded. Dr. GRPO, arXiv 2503.20783."""
    if are_equal(returns):
        return [0.0] * len(returns)
    mean = statistics.fmean(returns)
    return [value - mean for value in returns]


def rloo(returns: Sequence[float]) -> list[float]:
    """R_i - mean of the others = k / (k - 1) * (R_i - mean). arXiv 2402.14740. Needs two returns."""
    k = len(returns)
    return [k / (k - 1) * value for value in dr_grpo(returns)]


def reinforce_pp(batch: ReturnGroups) -> list[list[Advantage]]:
    """REINFORCE++ (arXiv 2501.03262): no group baseline, normalised over the whole batch.

    With gamma 1 and no KL in the reward every token's return is the trajectory's, so A = (R - mean) / (std + 1e-4) over
    all trajectories of the batch. The papers' implementations weigh each trajectory by its tokens; here each counts once.
    """
    flat = iter(grpo([earned.total for group in batch for earned in group]))
    return [[Advantage(next(flat)) for _ in group] for group in batch]


def reinforce_pp_baseline(batch: ReturnGroups) -> list[list[Advantage]]:
    """REINFORCE++ with group baseline (arXiv 2501.03262): R - mean of the group, then normalised over the whole batch.

    A = (C - mean C) / (std C + 1e-4) with C = R - mean(group), over all trajectories of the batch. Groups of easy and hard tasks
    are made alike by their baselines, and no group's own deviation divides.
    """
    centred = [dr_grpo([earned.total for earned in group]) for group in batch]
    normalised = iter(grpo([value for group in centred for value in group]))
    # mean C is 0 but for rounding, which must not become an advantage.
    return [
        [Advantage(value and scaled) for value, scaled in zip(group, normalised, strict=False)] for group in centred
    ]


def gae(batch: ReturnGroups) -> list[list[Advantage]]:
    """0: what values add comes from the critic when the batch is trained (`trainer/algorithms/gae.py`); the plan freezes the
    rewards of each call."""
    return [[Advantage(0.0) for _ in group] for group in batch]


def step_grpo(batch: ReturnGroups) -> list[list[Advantage]]:
    """GRPO per step: compares a call's return to go with those of the group's other calls in the same state.

    G_ik = sum of the rewards of calls k, k + 1, ... of trajectory i, plus its outcome; A_ik = grpo over the G of all calls of the
    group with an equal prompt, which is GiGPO's anchor state (arXiv 2505.10978). A call with a unique prompt is
    compared with all calls of one line at one depth. An aborted call, or one that is alone there too, has no
    counterpart: 0. Where only outcomes are rewarded and all members have equally many calls, this is `grpo`.
    """
    return [_stepwise(group) for group in batch]


def _stepwise(group: Sequence[Return]) -> list[Advantage]:
    to_go = {(i, k): value for i, earned in enumerate(group) for k, value in enumerate(_returns_to_go(earned))}
    classes: dict[Hashable, list[tuple[int, int]]] = defaultdict(list)
    for i, earned in enumerate(group):
        for k, state in enumerate(earned.states):
            if state is not None:
                classes[state.prompt_id].append((i, k))
                classes[state.line, state.depth].append((i, k))
    compared = {
        name: dict(zip(calls, grpo([to_go[call] for call in calls]), strict=True)) for name, calls in classes.items()
    }

    def advantage(i: int, k: int, state: CallState | None) -> float:
        if state is None:
            return 0.0
        same = compared[state.prompt_id]
        return (same if len(same) > 1 else compared[state.line, state.depth])[i, k]

    wholes = grpo([earned.total for earned in group])
    return [
        Advantage(whole, tuple(advantage(i, k, state) for k, state in enumerate(group[i].states)))
        for i, whole in enumerate(wholes)
    ]


def _returns_to_go(earned: Return) -> list[float]:
    """Returns one sum per call, from the last call back; the outcome belongs to every call."""
    return list(accumulate(reversed(earned.steps), initial=earned.outcome))[1:][::-1]


def sft(batch: ReturnGroups) -> list[list[Advantage]]:
    """Every trained response weighs the same; the spec's `best_of` and `return_min` say which are trained."""
    return [[Advantage(1.0) for _ in group] for group in batch]


def _per_group(function: Callable[[Sequence[float]], list[float]]) -> Advantages:
    return lambda batch: [
        [Advantage(value) for value in function([earned.total for earned in group])] for group in batch
    ]


@dataclass(frozen=True, slots=True)
class Estimator:
    """All that an algorithm decides. Adding one is adding a row to `ESTIMATORS` (docs/changing.md)."""

    function: Advantages
    members_min: int = 2
    """Ready trajectories that a group needs: 2 where they are compared with each other."""
    loss: Literal["ppo_clip", "cross_entropy"] = "ppo_clip"
    """The loss of `loss: auto`. Under cross_entropy advantages are only weights, and no other loss is accepted."""
    norm: Literal["token_mean", "constant"] = "token_mean"
    """The divisor of the summed losses under `norm: auto`: the trained tokens of the batch, or trajectories x
    `loss_length`."""
    over_batch: bool = False
    """The returns of all groups of one batch are compared with each other; a single group
    then has no advantages."""
    by_state: bool = False
    """Calls are compared by the state that they were made in; their returns then carry it."""
    critic: bool = False
    """A critic's values make the advantages, when the batch is trained."""


ESTIMATORS: Mapping[str, Estimator] = {
    "grpo": Estimator(_per_group(grpo)),
    "dr_grpo": Estimator(_per_group(dr_grpo), norm="constant"),
    "rloo": Estimator(_per_group(rloo)),
    "reinforce_pp": Estimator(reinforce_pp, members_min=1, over_batch=True),
    "reinforce_pp_baseline": Estimator(reinforce_pp_baseline, over_batch=True),
    "step_grpo": Estimator(step_grpo, by_state=True),
    "gae": Estimator(gae, members_min=1, critic=True),
    "sft": Estimator(sft, members_min=1, loss="cross_entropy"),
}
"""By `BatchSpec.algorithm`, whose allowed values are the names of these rows."""
