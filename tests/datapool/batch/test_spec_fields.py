"""Each field of a batch spec changes what is trained: the same pool, one field changed, another plan."""

import pytest
from msgspec.structs import replace

from claw_r1.datapool.batch.advantages import ESTIMATORS
from claw_r1.datapool.batch.plan import assemble
from claw_r1.datapool.batch.selection import select
from claw_r1.datapool.batch.spec import BatchSpec, Bounds
from claw_r1.schemas.events import CallCaptured, Event, TrajectoryCompleted
from tests import facts
from tests.trainer.pooled import RUN, group, pooled

SPEC = BatchSpec(groups_per_batch=9, group_size=2, staleness_max=9, quality_min=0.1)


def cut_off(event: Event) -> Event:
    """The last reply of d/t1, as the engine ends one that is too long."""
    is_last = isinstance(event, CallCaptured) and (event.trajectory_id, event.call_id) == ("t1", "c1")
    return replace(event, finish_reason="length") if is_last else event


def is_completion(event: Event, trajectory_id: str) -> bool:
    return isinstance(event, TrajectoryCompleted) and event.trajectory_id == trajectory_id


POOL = pooled(
    [
        *group("a", [0.0, 1.0], at_us=1, tags=("maths", "env:sums"), version=2),
        *group("b", [1.0, 1.0], at_us=2, version=2),
        *group("c", [0.0, 0.2, 1.0], at_us=3, tags=("priority:2.5",), expected_size=None, version=2),
        *map(cut_off, group("d", [0.0, 1.0], at_us=4, version=0)),
        *group("e", [0.0, 1.0], at_us=5, channel="probe", version=2),
        *group("f", [-1.0, -2.0], at_us=6, version=2),
        *group("h", [0.0, 1.0], at_us=8, run="other"),
        *(event for event in group("i", [0.0, 1.0], at_us=9) if not is_completion(event, "t1")),
        facts.reward("i", "t1", 3.0, source="judge"),
        facts.abandoned("i", "t1"),
        facts.curated("a", "t0", "c0", quality=0.2, scores={"length@1": 0.2, "entropy@1": 0.9, "tool_calls@2": None}),
        facts.curated("a", "t0", "c1", tags=("leak",)),
        facts.reward("a", "t0", 5.0, source="judge", name="style", call_id="c0"),
    ]
).pool


def trained(spec, pool=POOL):
    """What the plan trains: group, trajectory, reward, advantage, and each response with its advantage, in order."""
    selection = select(pool, spec, 2, RUN, ())
    plan = assemble(selection.chosen, spec, run_id=RUN, sequence=0, version=2, seed=0, envelope=facts.envelope("plan"))
    return [
        (
            t.group_id,
            t.trajectory_id,
            t.reward,
            t.advantage,
            tuple((s.call_id, s.advantage, s.weights) for s in t.steps if s.trained),
            plan.oldest_version,
        )
        for t in plan.trajectories
    ]


FIELDS = {
    "algorithm": "dr_grpo",
    "policy": "any",
    "groups_per_batch": 1,
    "group_size": 4,
    "staleness_max": 0,
    "stale": "tokens",
    "channel": "probe",
    "tags": ("maths",),
    "tags_exclude": ("leak",),
    "reward_weights": {"judge/style": 0.0},
    "reward_mean_min": -1.0,
    "reward_mean_max": 0.9,
    "return_min": 0.5,
    "best_of": 1,
    "quality_min": 0.5,
    "scores": {"length@1": Bounds(min=0.5)},
    "quality_missing": "reject",
    "zero_variance": "drop",
    "truncated": "mask",
    "unfinished": "train",
    "environments": {"sums": 1.0},
    "mix": {"maths": (0.0, 1.0, 0.0)},
    "response_tokens_max": 30,
    "order": "newest",
}


JUDGED = pooled(
    [
        *group("p", [None, None, None], version=2),
        *(
            facts.reward("p", "t0", value, source=f"human:{who}", name="ok")
            for who, value in zip("abc", (1, 1, 0), strict=True)
        ),
        *(facts.reward("p", f"t{n}", 0.25 + n, source="judge", name="ok") for n in range(3)),
        facts.reward("p", "t1", 1.0, source="judge", name="style"),
        facts.reward("p", "t2", 1.0, source="judge", name="style"),
        facts.gave_up("p", "t0"),
    ]
).pool
FIELDS_OF_REWARDS = {
    "reward_merge": ({}, "majority"),
    "reward_prefer": ({}, (("human:*/ok", "judge/ok"),)),
    "rewards_required": ({}, ("judge/style",)),
    "reward_missing": ({"rewards_required": ("judge/style",)}, {"value": 0.5}),
}
"""Field -> what it needs beside it, and its value; on a pool that people and scorers judged."""


def test_every_field_is_tried():
    """A field that is added to the spec needs a line here."""
    assert {*FIELDS, *FIELDS_OF_REWARDS} == set(BatchSpec.model_fields)


@pytest.mark.parametrize("field", FIELDS_OF_REWARDS)
def test_a_field_of_rewards_changes_what_is_trained(field):
    """One field, another plan."""
    beside, value = FIELDS_OF_REWARDS[field]
    one, other = (BatchSpec(group_size=2, staleness_max=9, **beside, **more) for more in ({}, {field: value}))
    assert trained(other, JUDGED) != trained(one, JUDGED) != []


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_changes_what_is_trained(field):
    """One field, another plan."""
    assert trained(SPEC.model_copy(update={field: FIELDS[field]})) != trained(SPEC)


@pytest.mark.parametrize("algorithm", [name for name in ESTIMATORS if name != "grpo"])
def test_each_algorithm_trains_something_else(algorithm):
    """No two algorithms give this pool the same advantages as GRPO does."""
    assert trained(SPEC.model_copy(update={"algorithm": algorithm})) != trained(SPEC)


def groups(spec):
    return list(dict.fromkeys(row[0] for row in trained(spec)))


def test_order_says_who_comes_first():
    """The oldest, the newest, or the highest priority tag; equal ones by age."""
    one = SPEC.model_copy(update={"groups_per_batch": 3})
    assert groups(one) == ["a", "b", "c"]
    assert groups(one.model_copy(update={"order": "newest"})) == ["f", "d", "c"]
    assert groups(one.model_copy(update={"order": "priority"})) == ["c", "a", "b"]


def test_weights_make_the_return():
    """Named slots count with their weight, `*` is all others, a weight of 0 is no reward at all."""
    rewards = {row[:2]: row[2] for row in trained(SPEC)}
    assert rewards["a", "t0"] == 5.0
    weighted = SPEC.model_copy(update={"reward_weights": {"judge/style": 0.1, "*": 2.0}})
    rewards = {row[:2]: row[2] for row in trained(weighted)}
    assert (rewards["a", "t0"], rewards["a", "t1"]) == (0.5, 2.0)
    only_style = SPEC.model_copy(update={"reward_weights": {"judge/style": 1.0, "*": 0.0}})
    left_out = select(POOL, only_style, 2, RUN, ()).left_out
    assert left_out["b"] == "reward_missing_for_2"
    assert left_out["a"] == "reward_missing_for_1"


def test_the_best_are_trained_and_all_are_counted():
    """`best_of` trains the highest return, the first of equal ones; the others stay in baseline and mean reward."""
    rows = trained(SPEC.model_copy(update={"best_of": 1}))
    assert [row[1] for row in rows if row[4]] == ["t0", "t0", "t2", "t1", "t0"]
    assert [row[:4] for row in rows] == [row[:4] for row in trained(SPEC)]


def test_a_group_of_one_is_enough_without_a_group_baseline():
    """REINFORCE++ and SFT train lone trajectories; GRPO never does."""
    pool = pooled(group("lone", [1.0])).pool
    for preset, chosen in (("reinforce_pp", 1), ("sft_best", 1), ("grpo", 0)):
        spec = BatchSpec.model_validate({"preset": preset})
        assert len(select(pool, spec, 0, RUN, ()).chosen) == chosen


def test_nothing_above_the_threshold_is_a_reason():
    """A group none of whose trajectories is good enough is skipped with that reason."""
    spec = SPEC.model_copy(update={"return_min": 7.0})
    assert set(select(POOL, spec, 2, RUN, ()).skipped.values()) == {"nothing_trainable: return_low"}
