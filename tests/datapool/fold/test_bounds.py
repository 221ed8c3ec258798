"""What a record has no room for: the same part of too many in any order, counted, and a reason not to be trained."""

import random as chance
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_r1.consumers.export.choose import choose
from claw_r1.consumers.verify.oracle import bounds as oracle_bounds
from claw_r1.datapool.errors import UnusableFact
from claw_r1.datapool.fold import bounds
from claw_r1.datapool.fold.fold import fold
from claw_r1.datapool.fold.project import project
from claw_r1.datapool.fold.restore import restore
from claw_r1.datapool.fold.state import GroupState
from claw_r1.datapool.fold.validation import usable
from claw_r1.datapool.view.listing.pool_filter import PoolFilter
from claw_r1.datapool.view.listing.query import find_groups
from claw_r1.schemas.codec import decode, encode
from claw_r1.schemas.events import Event, FactPosition, GroupRecord, StepRecord, TrajectoryRecord
from tests import facts, oracle
from tests.trainer.pooled import pooled

SMALL = {
    (bounds, "GROUP_MEMBERS_BYTES_MAX"): 200,
    (bounds, "TRAJECTORY_CALLS_BYTES_MAX"): 20,
    (bounds, "FAILED_CALLS_MAX"): 1,
    (bounds, "REWARDS_MAX"): 2,
    (bounds, "JUDGEMENTS_MAX"): 2,
    (oracle_bounds, "MEMBERS_BYTES"): 200,
    (oracle_bounds, "CALLS_BYTES"): 20,
    (oracle_bounds, "FAILURES"): 1,
    (oracle_bounds, "SLOTS"): 2,
    (oracle_bounds, "JUDGEMENTS"): 2,
}
"""Two members, two calls, one failed call, two rewards, two judgements."""


@contextmanager
def small_records() -> Iterator[None]:
    """The oracle is another module with constants of its own, so both sides are made small."""
    with pytest.MonkeyPatch.context() as patch:
        for (module, name), value in SMALL.items():
            patch.setattr(module, name, value)
        yield


def folded(log: list[tuple[Event, FactPosition]], restarts: chance.Random | None = None) -> dict[str, GroupState]:
    states: dict[str, GroupState] = {}
    for fact, position in log:
        try:
            states[fact.group_id] = fold(states.get(fact.group_id), usable(fact), position)
        except UnusableFact:
            continue
        if restarts is not None and restarts.random() < 0.3:
            states[fact.group_id] = restarted(states[fact.group_id])
    return states


def restarted(state: GroupState) -> GroupState:
    (again,) = restore(decode(encode(record)) for record in project(state).values()).values()
    return again


def pool(states: dict[str, GroupState]) -> dict[object, Event]:
    return {tuple(key): record for state in states.values() for key, record in project(state).items()}


def expected(log: list[tuple[Event, FactPosition]]) -> dict[object, Event]:
    return {key: decode(value) for key, value in oracle.pool_of(log).items()}


@given(facts.logs(), st.randoms(use_true_random=False))
def test_of_too_many_the_same_stand_in_the_record_in_any_order_and_after_restarts(log, random):
    """Full records are functions of the set of facts, as all are, and can be read back and gone on with."""
    with small_records():
        delivered = [*log, *random.choices(log, k=5)]
        random.shuffle(delivered)
        assert pool(folded(delivered, random)) == expected(log)


def told(*events: Event) -> tuple[GroupRecord, TrajectoryRecord, dict[str, StepRecord]]:
    with small_records():
        records = pool(folded(facts.placed(events))).values()
    (group,) = [one for one in records if isinstance(one, GroupRecord)]
    trajectory = min((one for one in records if isinstance(one, TrajectoryRecord)), key=lambda one: one.trajectory_id)
    return group, trajectory, {one.call_id: one for one in records if isinstance(one, StepRecord)}


def test_a_group_counts_the_members_that_its_record_has_no_room_for():
    """The first by id are listed; nobody is told that the group is whole."""
    group, _, _ = told(*[event for name in "dacb" for event in (facts.call("g", name), facts.completed("g", name))])
    assert [member.trajectory_id for member in group.members] == ["a", "b"]
    assert (group.members_left_out, group.ready, group.reasons) == (2, False, ("too_many_members",))


def test_a_closing_settles_who_counts_in_an_overfull_group():
    """What it lists stands in the record; one that lists more than a record holds is a dead letter."""
    members = [event for name in "abc" for event in (facts.call("g", name), facts.completed("g", name))]
    group, _, _ = told(*members, facts.closed("g", ["b", "c"]))
    assert ([one.trajectory_id for one in group.members], group.members_left_out, group.ready) == (["b", "c"], 0, True)
    with small_records(), pytest.raises(UnusableFact) as refused:
        usable(facts.closed("g", ["a", "b", "c"]))
    assert refused.value.reason == "too_many_members"


def test_a_trajectory_counts_the_calls_that_its_record_has_no_room_for():
    """The first by time are listed; the rows of the others are there all the same."""
    calls = [facts.call(call_id=name, received_us=at) for at, name in enumerate("dacb")]
    _, trajectory, steps = told(*calls, facts.completed())
    assert (trajectory.calls, trajectory.calls_left_out, trajectory.trainable_calls) == (("d", "a"), 2, 4)
    assert (trajectory.ready, trajectory.reasons, sorted(steps)) == (False, ("too_many_calls",), ["a", "b", "c", "d"])


def test_failed_calls_that_find_no_room_keep_nothing_from_training():
    """They tell people what went wrong; the calls that did not fail are as good as before."""
    failures = [facts.failure(call_id=name) for name in "fed"]
    _, trajectory, _ = told(facts.call(), *failures, facts.completed())
    assert (trajectory.failed_calls, trajectory.ready) == (("d#0",), True)


@pytest.mark.parametrize("subject", [{}, {"call_id": "c"}, {"step_index": 0}], ids=["trajectory", "call", "index"])
def test_a_subject_with_too_many_rewards_is_not_ready(subject):
    """A return without some of its rewards would be a wrong one."""
    rewards = [facts.reward(name=name, **subject) for name in "cba"]
    _, trajectory, steps = told(facts.call(), *rewards, facts.completed())
    kept = trajectory.rewards or steps["c"].rewards
    assert ([slot.name for slot in kept], trajectory.reasons) == (["a", "b"], ("too_many_rewards",))


def test_a_call_with_too_many_judgements_is_not_trained():
    """The latest are kept; a forgotten one may have said that nobody trains on it."""
    said = [facts.curated(revision=number, quality=number / 8) for number in range(3)]
    _, _, steps = told(facts.call(), *said)
    curation = steps["c"].curation
    assert curation is not None
    assert ([one.revision for one in curation.judgements], curation.quality) == ([1, 2], 0.25)
    assert (steps["c"].trainable, steps["c"].reasons) == (False, ("too_many_judgements",))


def test_what_a_record_leaves_out_is_exported_and_found_by_name():
    """Its rows are there: only the list has no room."""
    members = [event for name in "abc" for event in (facts.call("g", name), facts.completed("g", name))]
    events = [*members, *[facts.call("g", "a", name, received_us=1) for name in "xyz"]]
    with small_records():
        (state,) = folded(facts.placed(events)).values()
        chosen = choose(state, None)
        rows = pooled(events).pool
        found = [find_groups(rows, PoolFilter(trajectory=name)) for name in ("a", "c", "nobody")]
    assert [[step.call_id for step in one.steps] for one in chosen] == [["c", "x", "y", "z"], ["c"], ["c"]]
    assert [len(groups) for groups in found] == [1, 1, 0]
