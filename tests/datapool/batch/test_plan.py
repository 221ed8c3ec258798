"""The plan of a selection, on pools that the real folds made."""

import pytest

from claw_r1.datapool.batch.members import plan_bytes
from claw_r1.datapool.batch.plan import groups_of
from claw_r1.datapool.batch.selection import Selection, select
from claw_r1.datapool.digests import call_digest
from claw_r1.schemas.codec import encode
from claw_r1.schemas.events import Event
from claw_r1.trainer.journal.history import history_of
from tests import facts
from tests.datapool.batch.selecting import SPACIOUS, SPEC, chosen, planned, selected
from tests.trainer.pooled import RUN, group, pooled


@pytest.mark.parametrize(
    "late",
    [
        facts.reward("a", "t0", 9.0, source="judge"),
        facts.curated("a", "t0", "c0", trainable=False, quality=0.0),
        facts.evicted("a", "t0"),
    ],
    ids=lambda fact: type(fact).__name__,
)
def test_what_comes_after_training_changes_the_pool_and_no_plan(late: Event) -> None:
    """The group has another digest, its run plans it no more, and the plan's tokens are where the plan says, unchanged."""
    told = group("a", [0.0, 1.0]) + group("b", [0.0, 1.0])
    before, after = pooled(told), pooled([*told, late])
    plan = planned(select(before.pool, SPEC, 0, RUN, ()))
    digests = [world.pool.group("a").digest for world in (before, after)]
    assert digests[0] != digests[1]
    assert chosen(select(after.pool, SPEC, 1, RUN, history_of([plan], RUN).settled)) == []
    steps = [step for trajectory in plan.trajectories for step in trajectory.steps]
    for step in steps:
        at = step.position
        (record,) = after.log.read_range(at.topic, at.partition, at.offset, at.offset + 1)
        assert call_digest(record.event()) == step.digest
    assert planned(select(after.pool, SPEC, 0, RUN, ())).trajectories != plan.trajectories, (
        "a run of its own would see it"
    )


def test_a_plan_freezes_reward_advantage_and_place() -> None:
    """Per trajectory the return and its advantage over the group's trajectories; per step position and digest."""
    plan = planned(selected(group("a", [0.0, 1.0, 1.0, 0.0], at_us=1) + group("b", [0.5, 1.0], at_us=2)))
    assert groups_of(plan) == ("a", "b")
    assert [t.reward for t in plan.trajectories] == [0.0, 1.0, 1.0, 0.0, 0.5, 1.0]
    assert [t.advantage for t in plan.trajectories] == [-0.5, 0.5, 0.5, -0.5, -0.25, 0.25]
    steps = plan.trajectories[0].steps
    assert [step.call_id for step in steps] == ["c0", "c1"]
    assert all(step.position.topic == "claw.calls" and len(step.digest) == 64 and step.trained for step in steps)


def test_baselines_count_trajectories_not_calls() -> None:
    """A trajectory with many calls weighs as much in the baseline as one with few."""
    long = group("g", [1.0, 0.0], ids=[[5]] * 6)
    short = [e for e in long if not (getattr(e, "trajectory_id", "") == "t1" and getattr(e, "call_id", "c0") != "c0")]
    kept = [e for e in short if type(e).__name__ != "TrajectoryCompleted" or e.trajectory_id != "t1"]
    plan = planned(selected([*kept, facts.completed("g", "t1", calls=1, reward=0.0)]))
    assert [len(t.steps) for t in plan.trajectories] == [6, 1]
    assert [t.advantage for t in plan.trajectories] == [0.5, -0.5]


def test_curated_steps_are_masked() -> None:
    """A step that was curated away, or below the asked quality, stays in the plan and is not trained."""
    history = [
        *group("a", [0.0, 1.0]),
        facts.curated("a", "t0", "c1", trainable=False),
        facts.curated("a", "t1", "c0", quality=0.2),
    ]
    plan = planned(selected(history, spec := SPEC.model_copy(update={"quality_min": 0.5})), spec)
    assert [[step.trained for step in t.steps] for t in plan.trajectories] == [[True, False], [False, True]]


def test_the_order_of_facts_does_not_change_a_plan() -> None:
    """Interleaved groups give the plan of the same groups one after the other, places aside."""
    one, two = group("a", [0.0, 1.0], at_us=1), group("b", [1.0, 0.0], at_us=2)
    mixed = [event for pair in zip(one, two, strict=True) for event in pair]
    plans = [planned(selected(history)) for history in (one + two, mixed)]
    frozen = [[(t.group_id, t.reward, t.advantage, [s.digest for s in t.steps]) for t in p.trajectories] for p in plans]
    assert frozen[0] == frozen[1]


@pytest.mark.parametrize("name", ["a", "\U0001d535" * 500])
def test_a_plan_takes_no_more_than_was_counted(name: str) -> None:
    """So what is counted keeps every plan below the largest record."""
    selection = selected(group(name, [0.0, 1.0, 0.25]), SPACIOUS)
    empty = len(encode(planned(Selection((), {}, {}, False), SPACIOUS)))
    (one,) = selection.chosen
    taken = len(encode(planned(selection, SPACIOUS))) - empty
    assert taken <= plan_bytes(one, SPACIOUS) < 2 * taken + 1000


def test_a_plan_freezes_the_reward_of_each_call() -> None:
    """What the trajectory earned as a whole is with its last call, under the spec's weights; their sum is its return."""
    history = [*group("a", [0.25, 1.0]), facts.reward("a", "t1", 2.0, source="judge", call_id="c0")]
    spec = SPEC.model_copy(update={"algorithm": "gae", "reward_weights": {"judge/outcome": 0.5}})
    plan = planned(selected(history, spec), spec)
    assert [[step.reward for step in t.steps] for t in plan.trajectories] == [[0.0, 0.25], [1.0, 1.0]]
    assert [t.reward for t in plan.trajectories] == [0.25, 2.0]
    assert [t.advantage for t in plan.trajectories] == [0.0, 0.0]


def test_tags_mix_three_losses_in_one_batch() -> None:
    """By the first tag in order of name: of the response, its trajectory or its group; others have no weights of their own."""
    history = [
        *group("a", [0.0, 1.0]),
        *group("b", [0.0, 1.0], tags=("expert",)),
        facts.curated("a", "t0", "c1", tags=("expert",)),
        facts.curated("b", "t1", "c0", tags=("anchor",)),
    ]
    mix = {"expert": (0.0, 1.0, 0.0), "anchor": (1.0, 0.0, 5.0)}
    plan = planned(selected(history, spec := SPEC.model_copy(update={"mix": mix})), spec)
    assert [[step.weights for step in t.steps] for t in plan.trajectories] == [
        [None, mix["expert"]],
        [None, None],
        [mix["expert"], mix["expert"]],
        [mix["anchor"], mix["expert"]],
    ]
