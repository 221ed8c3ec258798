"""`policy: any`: replies of anybody are imitated, where their ids are known; nothing needs their policy."""

import pytest
from msgspec.structs import replace
from pydantic import ValidationError

from claw_r1.datapool.batch.plan import assemble, is_logged_data
from claw_r1.datapool.batch.selection import select
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.view.planned_rows import rows_of
from claw_r1.schemas.events import CallCaptured, Event, Integrity, Sampling, TrajectoryCompleted
from tests import facts
from tests.trainer.pooled import RUN, VOCABULARY, group, pooled

ANY = BatchSpec.model_validate({"preset": "sft_logged", "groups_per_batch": 1})
OWN = BatchSpec.model_validate({"preset": "sft_best", "groups_per_batch": 1, "group_size": 1})


def changed(history: list[Event], **fields: object) -> list[Event]:
    """With those fields on every call."""
    return [replace(event, **fields) if isinstance(event, CallCaptured) else event for event in history]


GREEDY = Sampling(temperature=0.0, top_p=1.0, top_k=0)
OF_OTHER_RUN = group("g", [0.0, 1.0], run="other", version=7)
OF_PROVIDER = changed(
    group("g", [0.0, 1.0]),
    spans=(),
    response_logprobs=b"",
    integrity=Integrity(complete=False, missing=("spans", "logprobs")),
)
UNJUDGED = [e for e in group("g", [None, None], run="other") if not isinstance(e, TrajectoryCompleted)] + [
    facts.abandoned("g", "t0"),
    facts.abandoned("g", "t1"),
]


def batch(history: list[Event], spec: BatchSpec, version: int = 0):
    """Why the group is left out, or its plan and rows."""
    world = pooled(history)
    selection = select(world.pool, spec, version, RUN, ())
    if not selection.complete:
        return {**selection.skipped, **selection.left_out}["g"]
    plan = assemble(selection.chosen, spec, run_id=RUN, sequence=0, version=version, seed=0, envelope=facts.envelope())
    return plan, rows_of(plan, world.log.lookup(), VOCABULARY)


@pytest.mark.parametrize(
    ("history", "why_not"),
    [
        (OF_OTHER_RUN, "other_run"),
        (OF_PROVIDER, "not_ready: members_missing, no_ready_member"),
        (changed(group("g", [0.0, 1.0]), sampling=GREEDY), "not_ready: members_missing, no_ready_member"),
        (UNJUDGED, "other_run"),
    ],
    ids=["other run", "ids alone", "greedy", "abandoned without reward"],
)
def test_anybodys_replies_are_imitated(history, why_not):
    """The very ids that were captured, scored at temperature 1, of no version; the run's own policy alone trains none of it."""
    assert batch(history, OWN) == why_not
    plan, rows = batch(history, ANY, version=50)
    assert is_logged_data(plan)
    assert [list(row.ids) for row in rows] == [[1, 2, 5, 6, 7, 3, 8, 9], [1, 3, 5, 6, 7, 3, 8, 9]]
    for row in rows:
        assert list(row.mask) == [0, 0, 1, 1, 1, 0, 1, 1]
        assert set(row.temperatures) == {1.0}
    assert {(t.min_version, t.max_version, t.advantage) for t in plan.trajectories} == {(None, None, 1.0)}


@pytest.mark.parametrize(
    ("history", "why_not"),
    [
        (changed(OF_OTHER_RUN, status="aborted"), "nothing_trainable: "),
        (UNJUDGED[:-1], "not_ready: members_open"),
    ],
    ids=["aborted", "open"],
)
def test_what_cannot_be_imitated(history, why_not):
    """Replies that broke off, and what is still to come."""
    assert batch(history, ANY) == why_not


def test_a_call_that_was_curated_away_stays_away():
    """Whatever the policy."""
    plan, rows = batch([*OF_OTHER_RUN, facts.curated("g", "t0", "c1", trainable=False)], ANY)
    assert [[step.trained for step in t.steps] for t in plan.trajectories] == [[True, False], [True, True]]
    assert [row.trained_tokens for row in rows] == [3, 5]


def test_a_spec_that_compares_returns_waits_for_them():
    """The best of a group is known once all are judged."""
    assert batch(UNJUDGED, ANY.model_copy(update={"best_of": 1})) == "reward_missing_for_2"
    plan, _ = batch(OF_OTHER_RUN, ANY.model_copy(update={"best_of": 1}))
    assert [bool(t.steps) for t in plan.trajectories] == [False, True]


@pytest.mark.parametrize("algorithm", ["grpo", "reinforce_pp", "gae"])
def test_a_ratio_needs_the_policy_that_sampled(algorithm):
    """Refused in one line."""
    with pytest.raises(ValidationError, match=f"policy: any has no ratio, which {algorithm} needs"):
        BatchSpec(algorithm=algorithm, policy="any")
