"""Trajectories whose last reply was cut off: trained, in the baseline only, or not even there."""

import pytest
from msgspec.structs import replace

from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.schemas.events import CallCaptured, Event, TrajectoryCompleted
from tests import facts
from tests.datapool.batch.selecting import SPEC, chosen, planned, selected
from tests.trainer.pooled import group


def cut_off(history: list[Event], *members: str, call_id: str = "c1") -> list[Event]:
    """The replies to that call of those members end by their length."""
    return [
        replace(event, finish_reason="length")
        if isinstance(event, CallCaptured) and event.call_id == call_id and event.trajectory_id in members
        else event
        for event in history
    ]


HISTORY = cut_off(group("g", [0.0, 1.0, 2.0]), "t2")


def of_policy(policy, history=HISTORY):
    spec = SPEC.model_copy(update={"truncated": policy, "groups_per_batch": 1})
    return spec, selected(history, spec)


@pytest.mark.parametrize(
    ("policy", "advantages", "trained"),
    [
        ("train", {"t0": -1.0, "t1": 0.0, "t2": 1.0}, {"t0", "t1", "t2"}),
        ("mask", {"t0": -1.0, "t1": 0.0, "t2": 1.0}, {"t0", "t1"}),
        ("drop", {"t0": -0.5, "t1": 0.5}, {"t0", "t1"}),
    ],
)
def test_who_counts_and_who_is_trained(policy, advantages, trained):
    """R - mean over those that count: t2 is cut off."""
    spec, selection = of_policy(policy)
    plan = planned(selection, spec)
    assert {t.trajectory_id: t.advantage for t in plan.trajectories} == advantages
    assert {t.trajectory_id for t in plan.trajectories if any(step.trained for step in t.steps)} == trained


def test_only_the_last_reply_counts_and_no_aborted_one():
    """An earlier reply that was cut off did not end the episode; one that broke off is no reply."""
    _, earlier = of_policy("drop", cut_off(group("g", [0.0, 1.0, 2.0]), "t2", call_id="c0"))
    assert [len(one.members) for one in earlier.chosen] == [3]
    aborted = facts.call("g", "t2", "c9", status="aborted", received_us=9, envelope=facts.envelope("broken"))
    uncounted = [replace(e, calls=None) if hasattr(e, "calls") else e for e in [*HISTORY, aborted]]
    _, later = of_policy("drop", uncounted)
    assert [[*one.dropped] for one in later.chosen] == [["t2"]]


def test_a_group_waits_for_no_other_member_in_the_place_of_a_dropped_one():
    """All members of the declared size have come; what is left is trained, or is too few for a baseline."""
    _, selection = of_policy("drop")
    assert chosen(selection) == ["g"]
    _, lonely = of_policy("drop", cut_off(group("g", [0.0, 1.0, 2.0]), "t0", "t2"))
    assert lonely.skipped == {"g": "truncated_2_of_3"}


def test_a_group_of_which_all_are_masked_has_that_reason():
    """For `claw pool why`."""
    _, selection = of_policy("mask", cut_off(group("g", [0.0, 1.0]), "t0", "t1"))
    assert selection.skipped == {"g": "nothing_trainable: truncated"}


def given_up(*members: str, reward: float | None = 2.0) -> list[Event]:
    """The group of three of whom those were abandoned, after a judge's reward."""
    history: list[Event] = []
    for event in group("g", [0.0, 1.0, 5.0]):
        if isinstance(event, TrajectoryCompleted) and event.trajectory_id in members:
            judged = [] if reward is None else [facts.reward("g", event.trajectory_id, reward, source="judge")]
            history += [*judged, facts.abandoned("g", event.trajectory_id)]
        else:
            history.append(event)
    return history


@pytest.mark.parametrize(
    ("policy", "advantages", "trained"),
    [
        ("train", {"t0": -1.0, "t1": 0.0, "t2": 1.0}, {"t0", "t1", "t2"}),
        ("mask", {"t0": -1.0, "t1": 0.0, "t2": 1.0}, {"t0", "t1"}),
    ],
)
def test_a_trajectory_that_was_abandoned_counts_with_what_it_earned(policy, advantages, trained):
    """R - mean over 0, 1 and 2: it takes the place of the member that its group was declared with."""
    spec = SPEC.model_copy(update={"unfinished": policy, "groups_per_batch": 1})
    plan = planned(selected(given_up("t2"), spec), spec)
    assert {t.trajectory_id: t.advantage for t in plan.trajectories} == advantages
    assert {t.trajectory_id for t in plan.trajectories if any(step.trained for step in t.steps)} == trained


@pytest.mark.parametrize("policy", ["train", "mask"])
@pytest.mark.parametrize("supplied", [False, True])
def test_with_rewards_of_no_weight_it_is_not_there(policy, supplied):
    """A slot of weight 0 is as if nobody had given it: the member is dropped, as without it, and not its group."""
    words = {"unfinished": policy, "reward_weights": {"judge/style": 0.0}, "groups_per_batch": 1}
    if supplied:  # nor does a value in place of a missing reward make it one that was judged
        words |= {"rewards_required": ("judge/outcome",), "reward_missing": {"value": 0.25}}
    spec = BatchSpec.model_validate(SPEC.model_dump() | words)
    weightless = [facts.reward("g", "t2", 1.0, source="judge", name="style")]
    for more in ([], weightless):
        history = [*given_up("t2", reward=None), *more]
        assert selected(history, spec).left_out == {"g": "members_2_of_3"}
        chosen = selected([*history, facts.closed("g", ("t0", "t1", "t2"))], spec)
        assert (chosen.skipped, [one.record.trajectory_id for one in chosen.chosen[0].members]) == ({}, ["t0", "t1"])


def test_dropped_or_without_a_reward_it_is_not_there():
    """Its group waits for its member, until a deadline closes it with the others."""
    spec = SPEC.model_copy(update={"unfinished": "train", "groups_per_batch": 1})
    assert selected(given_up("t2"), SPEC).left_out == {"g": "not_ready: members_missing"}
    assert selected(given_up("t2", reward=None), spec).left_out == {"g": "members_2_of_3"}
    closed = [*given_up("t2", reward=None), facts.closed("g", ("t0", "t1", "t2"))]
    plan = planned(selected(closed, spec), spec)
    assert {t.trajectory_id: t.advantage for t in plan.trajectories} == {"t0": -0.5, "t1": 0.5}
