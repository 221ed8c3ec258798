"""Facts that decode well and still mean nothing. Checked before folding, so that refusal depends on no state."""

import math
from collections.abc import Callable
from typing import Any, cast, get_args

from claw_r1.datapool.errors import UnusableFact
from claw_r1.datapool.fold.bounds import ID_CHARACTERS_MAX, fit_in_group
from claw_r1.datapool.fold.state import COMPLETION, Fact
from claw_r1.eventlog.partitioner import partition_of
from claw_r1.schemas.events import (
    Event,
    GroupClosed,
    OutputEdited,
    PreferenceGiven,
    RewardAssigned,
    ScoringFailed,
    StepCurated,
    TrajectoryCompleted,
    TrajectoryStarted,
)
from claw_r1.schemas.keys import group_key

PASSED_BY = frozenset({PreferenceGiven, OutputEdited})
"""People's events on claw.rewards that are no facts of the pool: folds skip them, and they are no sign of life."""
ID_SHOWN = 40
REWARD_MAX = 1e30
"""The largest reward of either sign: sums of rewards and the squares of their deviations stay numbers, and a trainer's
float32 holds them."""

COMPLETE_AGAIN = (
    f"the reward {COMPLETION.source}/{COMPLETION.name} of a trajectory is part of its completion: to correct it, complete "
    "the trajectory again; the later completion counts as a whole"
)


def usable(event: Event) -> Fact:
    """The event as a fact. Raises UnusableFact when it is none or contradicts its own contract."""
    kind = type(event)
    if kind not in CHECKS:
        raise UnusableFact("wrong_type", f"{kind.__name__} is no fact of the pool")
    fact = cast("Fact", event)
    if not fact.envelope.event_id:
        raise UnusableFact(
            "event_id_missing", f"a {kind.__name__} of group {fact.group_id[:ID_SHOWN]!r} has no event id"
        )
    for name in (fact.group_id, getattr(fact, "trajectory_id", ""), getattr(fact, "call_id", None) or ""):
        if len(name) > ID_CHARACTERS_MAX:
            raise UnusableFact("id_too_long", f"an id of {len(name)} characters begins {name[:ID_SHOWN]!r}")
    check = CHECKS[kind]
    if check is not None:
        check(event)
    return fact


def check_place(fact: Fact, key: bytes | None, partition: int, partitions: int) -> None:
    """Raises UnusableFact for a fact that is not where its group is: two halves under one key would both be called whole.

    key, partition: of the record that held it; partitions: of its topic.
    """
    expected_key = group_key(fact.group_id)
    if key != expected_key:
        raise UnusableFact("wrong_key", f"key {key!r} of a fact about group {fact.group_id}")
    if partition_of(expected_key, partitions) != partition:
        raise UnusableFact("wrong_partition", f"group {fact.group_id} does not belong to partition {partition}")


def _reward(fact: RewardAssigned) -> None:
    _reward_value(fact.value)
    if fact.call_id is None and fact.step_index is not None and fact.step_index < 0:
        raise UnusableFact("step_index_negative", f"step index {fact.step_index} of {fact.trajectory_id}")
    _no_completion(fact, fact.step_index)


def _failed(fact: ScoringFailed) -> None:
    _no_completion(fact, None)


def _no_completion(fact: RewardAssigned | ScoringFailed, step_index: int | None) -> None:
    if is_of_completion(fact.source, fact.name, fact.call_id, step_index):
        raise UnusableFact("reward_of_completion", f"{fact.trajectory_id}: {COMPLETE_AGAIN}")


def is_of_completion(source: str, name: str, call_id: str | None, step_index: int | None) -> bool:
    """Returns whether a reward claims the slot that a completion's own reward has."""
    return call_id is None and step_index is None and (source, name) == (COMPLETION.source, COMPLETION.name)


def _start(fact: TrajectoryStarted) -> None:
    _finite("idle_not_finite", fact.idle_s)


def _completion(fact: TrajectoryCompleted) -> None:
    _reward_value(fact.reward)
    if fact.status not in ("completed", "failed"):
        raise UnusableFact("completion_status", f"{fact.trajectory_id} completed as {fact.status}")


def _reward_value(value: float | None) -> None:
    _finite("reward_not_finite", value)
    if value is not None and abs(value) > REWARD_MAX:
        raise UnusableFact("reward_too_large", f"{value} is beyond {REWARD_MAX:g}, which nobody could add up")


def _curation(fact: StepCurated) -> None:
    _finite("quality_not_finite", fact.quality)
    for score in fact.scores.values():
        _finite("score_not_finite", score)


def _closing(fact: GroupClosed) -> None:
    listed = frozenset(fact.members)
    if len(fit_in_group(listed)) < len(listed):
        raise UnusableFact("too_many_members", f"{len(listed)} members of {fact.group_id} in one closing")


def _finite(reason: str, value: float | None) -> None:
    if value is not None and not math.isfinite(value):
        raise UnusableFact(reason, f"{value} is no finite number")


Check = Callable[[Any], None]  # each takes the fact type it stands for
CHECKS: dict[type, Check | None] = dict.fromkeys(get_args(Fact)) | {
    RewardAssigned: _reward,
    ScoringFailed: _failed,
    TrajectoryStarted: _start,
    TrajectoryCompleted: _completion,
    StepCurated: _curation,
    GroupClosed: _closing,
}
"""The check that refuses invalid facts of each type."""
