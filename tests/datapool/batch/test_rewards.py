"""Who counts, how people are merged, and what becomes of a reward that is missing: from facts to plans."""

import itertools

import pytest
from hypothesis import given

from claw_r1.datapool.batch.rewards import slots_never_rewarded, worth
from claw_r1.datapool.batch.selection import Selection, select
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.fold.fold import fold
from claw_r1.datapool.fold.merge import winners
from claw_r1.datapool.fold.project import project
from claw_r1.datapool.fold.state import GroupState
from claw_r1.datapool.fold.validation import PASSED_BY
from claw_r1.schemas.events import Event, StepRecord, TrajectoryRecord
from tests import facts
from tests.datapool.batch.selecting import planned
from tests.trainer.pooled import RUN, group, pooled

GROUP = group("g", [None, None], ids=[(5, 6), (7,)])
"""t0 and t1 of two calls each, c0 and c1, that nobody judged."""
WORDS = itertools.count(1)


def said(who: str, value: float | None, trajectory: str = "t0", name: str = "ok", call: str | None = None) -> Event:
    """Each word is later than the ones before."""
    at = next(WORDS)
    return facts.reward(
        "g",
        trajectory,
        value,
        source=who,
        name=name,
        call_id=call,
        revision=at,
        envelope=facts.envelope(at_us=at),
    )


def selected(*words: Event, history: list[Event] = GROUP, **fields: object) -> Selection:
    spec = BatchSpec.model_validate({"group_size": 2, "groups_per_batch": 1, **fields})
    return select(pooled([*history, *words]).pool, spec, 0, RUN, ())


def returns(*words: Event, **fields: object) -> dict[str, float | None]:
    """Of the members of the group, which is chosen whoever judged it."""
    (only,) = selected(*words, algorithm="sft", policy="any", **fields).chosen
    return {one.record.trajectory_id: one.earned and one.earned.total for one in only.members}


WEIGHTS = {"human:*/*": 2.0, "human:*/ok": 3.0, "human:ann/*": 4.0, "human:ann/ok": 5.0, "*": 0.5}


@pytest.mark.parametrize(
    ("who", "name", "weight"),
    [
        ("human:ann", "ok", 5.0),
        ("human:ann", "style", 4.0),
        ("human:bob", "ok", 3.0),
        ("human:bob", "style", 2.0),
        ("judge", "ok", 0.5),
    ],
)
def test_the_exact_name_then_the_longest_pattern_has_the_weight(who: str, name: str, weight: float) -> None:
    """Whatever the order in the file: a plan's JSON has them by name."""
    for weights in (WEIGHTS, dict(reversed(WEIGHTS.items()))):
        assert returns(said(who, 1.0, name=name), reward_weights=weights)["t0"] == weight


def test_of_equally_long_patterns_the_first_by_name_counts() -> None:
    for weights in ({"a*/x": 1.0, "*b/x": 2.0}, {"*b/x": 2.0, "a*/x": 1.0}):
        assert BatchSpec(reward_weights=weights).weight("ab", "x") == 2.0


@pytest.mark.parametrize(("merge", "value"), [("mean", 0.5), ("median", 0.375), ("majority", 0.25), ("latest", 1.0)])
def test_what_several_people_said_is_one_reward(merge: str, value: float) -> None:
    """Of one subject under one name; other names and scorers add up as ever."""
    votes = [said(f"human:{who}", vote) for who, vote in zip("dcba", (0.5, 0.25, 0.25, 1.0), strict=True)]
    others = [said("human:a", 4.0, name="style"), said("judge", 8.0), said("human:a", 16.0, call="c0")]
    assert returns(*votes, *others, reward_merge=merge)["t0"] == value + 4.0 + 8.0 + 16.0


def test_of_equally_many_the_majority_is_their_mean() -> None:
    votes = [said(f"human:{who}", vote) for who, vote in zip("abcde", (1.0, 1.0, 0.0, 0.0, 7.0), strict=True)]
    assert returns(*votes, reward_merge="majority")["t0"] == 0.5


def test_a_vote_that_was_taken_back_or_weighs_nothing_is_merged_with_nobody() -> None:
    """And weights come before the merging."""
    votes = [said("human:a", 1.0), said("human:b", 0.5), said("human:b", None), said("human:c", 9.0)]
    assert returns(*votes, reward_weights={"human:c/ok": 0.0})["t0"] == 1.0
    assert returns(*votes[:2], reward_weights={"human:b/ok": 4.0})["t0"] == 1.5


def test_a_comment_alone_is_no_reward() -> None:
    assert returns(said("human:a", None, name="comment")) == {"t0": None, "t1": None}


PREFER = {"reward_prefer": [["human:*/ok", "judge/ok", "rule/*"]]}


def test_the_first_of_a_list_that_spoke_counts() -> None:
    """In each subject by itself; what no list names counts as ever."""
    words = [
        said("rule", 8.0),
        said("judge", 4.0),
        said("agent", 1.0),
        said("rule", 2.0, "t1"),
        said("rule", 0.5, "t1", "x"),
    ]
    assert returns(*words, **PREFER) == {"t0": 5.0, "t1": 2.5}
    people = [said("human:a", 0.0), said("human:b", 1.0), said("judge", 16.0, call="c1")]
    assert returns(*words, *people, **PREFER)["t0"] == 0.5 + 1.0 + 16.0


def test_whoever_takes_the_word_back_lets_the_next_one_count() -> None:
    words = [said("judge", 4.0), said("human:a", 1.0)]
    assert returns(*words, **PREFER)["t0"] == 1.0
    assert returns(*words, said("human:a", None), **PREFER)["t0"] == 4.0


JUDGED = [said("agent", value, name, name="outcome") for name, value in (("t0", 0.0), ("t1", 1.0))]
REQUIRED = {"rewards_required": ["judge/style"]}


def style(value: float | None, trajectory: str, call: str | None = None) -> Event:
    return said("judge", value, trajectory, "style", call)


def gave_up(trajectory: str, call: str | None = None) -> Event:
    return facts.gave_up("g", trajectory, call_id=call, revision=next(WORDS))


def members(selection: Selection) -> list[str]:
    return [one.record.trajectory_id for each in selection.chosen for one in each.members]


@pytest.mark.parametrize(
    "words",
    [
        [style(1.0, "t0"), style(0.0, "t1")],
        [style(1.0, "t0"), style(0.0, "t1", "c0"), style(0.5, "t1", "c1")],
    ],
    ids=["itself", "each of its calls"],
)
def test_a_trajectory_has_what_is_required_itself_or_in_each_call(words: list[Event]) -> None:
    assert members(selected(*JUDGED, *words, **REQUIRED)) == ["t0", "t1"]
    for missing in range(len(words)):
        rest = words[:missing] + words[missing + 1 :]
        waits = selected(*JUDGED, *rest, **REQUIRED)
        assert waits.left_out == {"g": "reward_required_for_1: judge/style"}


def test_only_calls_that_would_be_trained_need_the_reward() -> None:
    """Nobody judges what an agent asks for itself on the side."""
    side = facts.curated("g", "t1", "c1", tags=("kind:side",))
    words = [*JUDGED, style(1.0, "t0"), style(1.0, "t1", "c0")]
    assert selected(*words, **REQUIRED).chosen == ()
    assert members(selected(*words, side, **REQUIRED)) == ["t0", "t1"]


def test_a_reward_that_was_taken_back_is_waited_for_again() -> None:
    words = [*JUDGED, style(1.0, "t0"), style(1.0, "t1"), style(None, "t1")]
    assert selected(*words, **REQUIRED).left_out == {"g": "reward_required_for_1: judge/style"}


def test_closing_the_group_and_staleness_end_the_wait() -> None:
    """At its deadline the time for its rewards is over: whoever lacks one is left out, or takes the value."""
    closed = [*JUDGED, style(1.0, "t0"), facts.closed("g", ["t0", "t1"])]
    assert selected(*closed, **REQUIRED).skipped == {"g": "reward_required_1_of_2: judge/style"}
    (chosen,) = selected(*closed, **REQUIRED, reward_missing={"value": 0.5, "wait": True}).chosen
    assert chosen.returns == [1.0, 1.5]
    spec = BatchSpec(group_size=2, staleness_max=0, **REQUIRED)
    assert select(pooled([*GROUP, *JUDGED]).pool, spec, 0, RUN, ()).skipped == {}
    assert select(pooled([*GROUP, *JUDGED]).pool, spec, 1, RUN, ()).skipped == {"g": "too_stale"}


@pytest.mark.parametrize("call", [None, "c1"])
def test_a_scorer_that_gave_up_leaves_its_trajectory_out(call: str | None) -> None:
    """With that reason; where too few are left, the group for good. A later word of the slot fills it."""
    three = group("g", [0.0, 1.0, 0.5], ids=[(5, 6), (7,)])
    words = [style(1.0, "t0"), gave_up("t1", call), style(1.0, "t2")]
    (chosen,) = selected(*words, history=three, **REQUIRED).chosen
    assert [one.record.trajectory_id for one in chosen.members] == ["t0", "t2"]
    assert chosen.dropped == {"t1": "scoring_failed: judge/style deadline"}
    few = selected(*JUDGED, style(1.0, "t0"), gave_up("t1", call), **REQUIRED)
    assert few.skipped == {"g": "scoring_failed_1_of_2: judge/style deadline"}
    assert members(selected(*words, style(0.0, "t1"), history=three, **REQUIRED)) == ["t0", "t1", "t2"]


def nothing(trajectory: str, call: str | None = None, **fields: object) -> Event:
    """Its scorer's verdict is null."""
    where = {"source": "judge", "name": "style", "call_id": call, "verdict": facts.verdict(), **fields}
    return facts.reward("g", trajectory, None, **where)


@pytest.mark.parametrize("call", [None, "c1"])
def test_a_scorer_that_has_nothing_to_say_is_not_waited_for(call: str | None) -> None:
    """Its trajectory is left out, or takes the value, as after a failure; a better informed verdict fills the slot."""
    three = group("g", [0.0, 1.0, 0.5], ids=[(5, 6), (7,)])
    words = [style(1.0, "t0"), nothing("t1", call), style(1.0, "t2")]
    (chosen,) = selected(*words, history=three, **REQUIRED).chosen
    assert [one.record.trajectory_id for one in chosen.members] == ["t0", "t2"]
    assert chosen.dropped == {"t1": "reward_required: judge/style"}
    (chosen,) = selected(*words, history=three, **REQUIRED, reward_missing={"value": 0.5, "wait": True}).chosen
    assert len(chosen.members) == 3
    better = facts.reward("g", "t1", 1.0, source="judge", name="style", revision=7, verdict=facts.verdict())
    assert members(selected(*words, better, history=three, **REQUIRED)) == ["t0", "t1", "t2"]


def test_a_requirement_of_several_slots_waits_for_the_others() -> None:
    """One scorer has nothing to say, and the next may be about to speak."""
    words = [*JUDGED, style(1.0, "t0"), nothing("t1")]
    assert selected(*words, rewards_required=["judge/*"]).left_out == {"g": "reward_required_for_1: judge/*"}
    assert members(selected(*words, said("judge", 1.0, "t1"), rewards_required=["judge/*"])) == ["t0", "t1"]


def test_reject_is_as_if_it_had_never_been_played() -> None:
    three = group("g", [0.0, 1.0, 0.5], ids=[(5, 6), (7,)])
    reject = {**REQUIRED, "reward_missing": "reject"}
    (chosen,) = selected(style(1.0, "t0"), style(1.0, "t2"), history=three, **reject).chosen
    assert chosen.dropped == {"t1": "reward_required: judge/style"}
    assert len(chosen.members) == 2
    few = selected(*JUDGED, style(1.0, "t0"), **reject)
    assert few.skipped == {"g": "reward_required_1_of_2: judge/style"}
    both = selected(*JUDGED, gave_up("t0"), **reject)
    assert both.skipped == {"g": "dropped_2_of_2: judge/style, judge/style deadline"}


def test_what_is_missing_can_count_as_a_value() -> None:
    """Once for the trajectory; where calls are judged, in each that lacks it. Under its weight, and where it is preferred."""
    half = {**REQUIRED, "reward_missing": {"value": 0.5}}
    assert returns(style(1.0, "t0"), **half) == {"t0": 1.0, "t1": 0.5}
    assert returns(style(1.0, "t0", "c0"), gave_up("t1", "c0"), **half) == {"t0": 1.5, "t1": 1.0}
    assert returns(gave_up("t0"), reward_weights={"judge/*": 4.0}, **half) == {"t0": 2.0, "t1": 2.0}
    hidden = {"reward_prefer": [["human:*/ok", "judge/style"]]}
    assert returns(said("human:a", 8.0), **half, **hidden) == {"t0": 8.0, "t1": 0.5}


def test_a_value_can_wait_for_the_scorer_to_give_up() -> None:
    later = {**REQUIRED, "reward_missing": {"value": 0.5, "wait": True}}
    waits = selected(*JUDGED, style(1.0, "t0"), **later)
    assert waits.left_out == {"g": "reward_required_for_1: judge/style"}
    (chosen,) = selected(*JUDGED, style(1.0, "t0"), gave_up("t1"), **later).chosen
    assert chosen.returns == [1.0, 1.5]


def test_a_plan_keeps_what_it_froze_while_the_pool_goes_on() -> None:
    """Late, revised, taken back: whoever plans afterwards sees it, the plan that stands does not."""
    spec = BatchSpec(algorithm="dr_grpo", group_size=2, groups_per_batch=1)
    before = pooled([*GROUP, *JUDGED])
    plan = planned(select(before.pool, spec, 0, RUN, ()), spec)
    late = [said("agent", None, "t0", "outcome"), said("agent", 3.0, "t1", "outcome"), said("judge", 1.0, "t0")]
    after = pooled([*GROUP, *JUDGED, *late])
    assert [one.reward for one in plan.trajectories] == [0.0, 1.0]
    assert [one.reward for one in planned(select(after.pool, spec, 0, RUN, ()), spec).trajectories] == [1.0, 3.0]
    assert select(after.pool, spec, 0, RUN, ("g",)).chosen == ()


def test_a_spec_without_these_fields_is_written_as_ever() -> None:
    """So its plans are what they were, byte for byte; what is set stands in the plan and comes back."""
    later = {"reward_merge", "reward_prefer", "rewards_required", "reward_missing"}
    assert not any(name in BatchSpec().to_json() for name in later)
    spec = BatchSpec.model_validate({**PREFER, **REQUIRED, "reward_merge": "latest", "reward_missing": {"value": 1}})
    assert all(name in spec.to_json() for name in later)
    assert BatchSpec.model_validate_json(spec.to_json()) == spec


def test_a_slot_that_nobody_gives_is_named() -> None:
    """As a weight, in a preference, as required; a pattern is known when one slot is."""
    spec = BatchSpec(
        reward_weights={"judge/style": 1.0, "typo/x": 2.0, "*": 1.0},
        reward_prefer=(("human:*/ok", "judge/ok"),),
        rewards_required=("judge/styl",),
    )
    there = pooled([*GROUP, style(1.0, "t0", "c0"), gave_up("t1"), said("judge", 1.0), said("human:a", None)]).pool
    assert there.reward_slots == {"judge/style", "judge/ok"}
    assert [line.partition(" (")[0] for line in slots_never_rewarded(spec, there.reward_slots)] == [
        "reward_weights: nobody has given typo/x yet",
        "reward_prefer: nobody has given human:*/ok yet",
        "rewards_required: nobody has given judge/styl yet",
    ]


@given(facts.logs())
def test_a_spec_that_says_nothing_of_rewards_sums_as_the_pool_does(log: list[tuple[Event, facts.FactPosition]]) -> None:
    """Whatever was given, revised, taken back or failed, slot by slot: to the last bit."""
    states: dict[str, GroupState] = {}
    for fact, position in log:
        if type(fact) not in PASSED_BY:
            states[fact.group_id] = fold(states.get(fact.group_id), fact, position)
    for record in (record for state in states.values() for record in project(state).values()):
        if isinstance(record, StepRecord):
            assert worth(winners(record.rewards, ()), BatchSpec()) == record.reward_total
        if isinstance(record, TrajectoryRecord):
            assert worth([slot for slot in record.rewards if slot.step_index is None], BatchSpec()) == record.outcome
