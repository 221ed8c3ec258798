"""Why something is not ready, was left out, or when it was trained."""

import pytest

from datapool.batch_spec import BatchSpec
from datapool.plan import assemble, select
from datapool.runs import RunIndex
from datapool.why import Asked, why
from schemas.events import BatchSkipped, BatchTrained
from tests import facts
from tests.trainer.pooled import RUN, group, pooled

SPEC = BatchSpec(groups_per_batch=1, group_size=2, staleness_max=1, quality_min=0.5, best_of=1)
ROWS = pooled(
    [
        *group("done", [0.0, 1.0], at_us=1, version=5),
        *group("turn", [0.0, 1.0], at_us=2, version=5),
        *group("old", [0.0, 1.0], at_us=3, version=0),
        *group("short", [1.0], at_us=4, expected_size=2, version=5),
        *group("foreign", [0.0, 1.0], at_us=5, run="other"),
        facts.call("open", "walker", "w1", channel="train"),
        facts.reward("ghost", "nobody", 1.0, call_id="early"),
        facts.curated("turn", "t1", "c0", quality=0.1),
        facts.curated("old", "t1", "c0", quality=0.1),
    ]
).pool
ASKED = Asked(run_id=RUN, version=5, spec=SPEC)


def history(*, trained=True):
    runs = RunIndex()
    chosen = select(ROWS, SPEC, 5, RUN, ()).chosen
    plan = assemble(chosen, SPEC, run_id=RUN, sequence=3, version=5, seed=0, envelope=facts.envelope("p"))
    runs.apply(plan)
    if trained:
        runs.apply(BatchTrained(envelope=facts.envelope(), run_id=RUN, sequence=3, version=6, metrics={}))
    runs.apply(BatchSkipped(envelope=facts.envelope(), run_id=RUN, group_ids=("old",), reason="too_stale"))
    return runs


def told(name, runs=None, asked=ASKED):
    return why(ROWS, runs or history(), asked, name)


@pytest.mark.parametrize(
    ("name", "state", "says"),
    [
        ("done", "trained", "in batch 3 of run run: made version 6"),
        ("turn", "next", "would train it"),
        ("old", "skipped", "run run skipped it for good: too_stale"),
        ("short", "not_ready", "members_missing"),
        ("foreign", "left_out", "does not train it: other_run"),
        ("open", "not_ready", "member walker: open, not ready"),
        ("walker", "not_ready", "not ready (open)"),
        ("w1", "not_ready", "would train it"),
        ("nobody", "not_ready", "unknown"),
        ("early", "not_ready", "not trainable (no_call)"),
    ],
)
def test_every_fate_is_told(name, state, says):
    """One word, and a line that a person can read."""
    (answer,) = told(name)
    assert answer.state == state
    if name != "w1":
        assert any(says in line for line in answer.lines), answer.lines


def test_when_it_was_trained_is_run_batch_and_version():
    """Group, the trajectory that was among the best, and its call; the other one was only counted."""
    (of_group,) = told("done")
    assert of_group.trained == ((RUN, 3, 6),)
    of_trajectory = {answer.ids: answer for answer in told("t1")}["done", "t1"]
    assert (of_trajectory.state, of_trajectory.trained) == ("trained", ((RUN, 3, 6),))
    counted = {answer.ids: answer for answer in told("t0")}["done", "t0"]
    assert (counted.state, counted.trained) == ("left_out", ())
    of_call = {answer.ids: answer for answer in told("c1")}["done", "t1", "c1"]
    assert (of_call.state, of_call.trained) == ("trained", ((RUN, 3, 6),))


def test_a_plan_that_is_not_trained_yet_says_so():
    """Planned, without a version."""
    (answer,) = told("done", history(trained=False))
    assert (answer.state, answer.trained) == ("planned", ((RUN, 3, None),))


def test_low_quality_is_told():
    """A call under the spec's threshold is context only."""
    answer = {answer.ids: answer for answer in told("c0")}["turn", "t1", "c0"]
    assert answer.state == "left_out"
    assert any("quality 0.1 is below 0.5" in line for line in answer.lines)


def test_what_became_of_a_group_is_the_fate_of_its_calls():
    """A group that the run skipped has no calls that are left out of it."""
    answers = {answer.ids: answer for answer in told("c0")}
    assert answers["old", "t1", "c0"].state == answers["old", "t0", "c0"].state == "skipped"
    assert not any("context only" in line for line in answers["old", "t1", "c0"].lines)


def test_without_a_run_only_readiness_is_told():
    """Nobody trains: ready or not."""
    (answer,) = told("turn", RunIndex(), None)
    assert answer.state == "ready"


def test_an_unknown_id_has_no_answer():
    """Nothing is guessed."""
    assert told("nothing") == []


def test_a_group_that_nobody_declared_waits_for_its_reward_and_says_so():
    """Nothing ends its wait but a judge, staleness or retention; the answer names what is missing."""
    rows = pooled(group("quiet", [1.0, None], version=5)[1:]).pool  # without its declaration
    for version, says in ((5, "waits: reward_missing_for_1"), (7, "will never train it: too_stale")):
        (answer,) = why(rows, RunIndex(), Asked(run_id=RUN, version=version, spec=SPEC), "quiet")
        assert answer.state == "left_out"
        assert says in answer.lines[-1]
