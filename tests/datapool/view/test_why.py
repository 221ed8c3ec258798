"""Why something is not ready, was left out, or when it was trained."""

import pytest
from msgspec.structs import replace

from claw_r1.datapool.batch.plan import assemble
from claw_r1.datapool.batch.selection import select
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.fold import bounds
from claw_r1.datapool.runs import RunIndex
from claw_r1.datapool.view.why import Perspective, why
from claw_r1.schemas.events import BatchSkipped, BatchTrained, CallCaptured, RunEnded, RunStarted
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
        facts.call("lost", call_id="c1"),
        facts.completed("lost", calls=2),
        facts.call("orphan", call_id="c1"),
        facts.call("orphan", call_id="c2"),
        facts.completed("orphan", calls=1),
        facts.curated("turn", "t1", "c0", quality=0.1),
        facts.curated("old", "t1", "c0", quality=0.1),
    ]
).pool
ASKED = Perspective(run_id=RUN, version=5, spec=SPEC)


def planned_batch(rows, spec):
    chosen = select(rows, spec, 5, RUN, ()).chosen
    return assemble(chosen, spec, run_id=RUN, sequence=3, version=5, seed=0, envelope=facts.envelope("p"))


def planned(rows, spec):
    runs = RunIndex()
    runs.apply(planned_batch(rows, spec))
    return runs


def history(*, trained=True):
    runs = planned(ROWS, SPEC)
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


def test_a_batch_that_was_given_up_is_told_as_skipped():
    """Its plan could not be read any more: nothing of it is planned, and what goes on in the run does not train it."""
    runs = history(trained=False)
    fields = {"run_id": RUN, "group_ids": ("done",), "reason": "plan_unreadable: facts_cut", "sequence": 3}
    runs.apply(BatchSkipped(envelope=facts.envelope(), **fields))
    (answer,) = told("done", runs)
    assert (answer.state, answer.trained) == ("skipped", ())
    assert answer.lines[-1] == "  run run skipped it for good: plan_unreadable: facts_cut"


@pytest.mark.parametrize(
    ("name", "word", "says"),
    [
        ("lost", "calls_missing", "calls: 1 captured, 2 counted by its completion: the others have not come"),
        ("orphan", "calls_uncounted", "calls: 2 captured, 1 counted by its completion: the agent did not go on"),
    ],
)
def test_a_wrong_number_of_calls_is_told_with_both_numbers(name, word, says):
    """Whoever looks sees whether a call is still to come or one too many was captured."""
    (answer,) = [one for one in told("t") if one.ids == (name, "t")]
    assert (answer.state, word in answer.lines[0], answer.lines[1].strip().startswith(says)) == (
        "not_ready",
        True,
        True,
    )


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


THREE = group("g", [0.0, 1.0, 0.5], version=5, expected_size=2)
LATE = [
    facts.call("g", "t2", "c2", received_us=9),
    facts.completed("g", "t2", calls=3, reward=0.5, envelope=facts.envelope(at_us=9)),
    *(facts.call("g", "t3", f"c{number}", received_us=number) for number in range(2)),
    facts.completed("g", "t3", reward=2.0),
]


@pytest.mark.parametrize(
    ("spec", "call_id", "trajectory_id", "says"),
    [
        ({"best_of": 1}, None, "t0", "its return 0 was not among the best 1 of its group"),
        ({"best_of": 1}, "c1", "t0", "its return 0 was not among the best 1 of its group"),
        ({"return_min": 0.6}, None, "t2", "its return 0.5 was below return_min 0.6"),
        ({}, None, "t3", "it was no ready member of its group then"),
        ({}, "c0", "t3", "it was no ready member of its group then"),
        ({}, "c2", "t2", "it was not captured yet"),
        ({}, "c0", "t1", "it was masked, not trainable then"),
        (
            {"quality_min": 0.05, "tags_exclude": ("x",)},
            "c0",
            "t1",
            'not trainable then or kept out by the spec\'s filters (tags_exclude: ["x"], quality_min: 0.05)',
        ),
        ({"quality_min": 0.5}, None, "t1", "no call of it was trainable then and passed the spec's filters"),
        (
            {"quality_min": 0.5, "best_of": 1},
            "c0",
            "t1",
            "quality_min: 0.5), or its return 1 was not among the best 1",
        ),
    ],
)
def test_what_a_plan_left_out_is_told_by_the_plan(spec, call_id, trajectory_id, says):
    """Not what the pool or another spec says today: everything is trainable and judged by now."""
    judged = [facts.curated("g", "t1", "c0", trainable=False, quality=0.1)]
    judged += [facts.curated("g", "t1", "c1", quality=0.1)]
    wanted = BatchSpec(groups_per_batch=1, group_size=2, staleness_max=1, **spec)
    runs = planned(pooled([*THREE, *judged]).pool, wanted)
    runs.apply(BatchTrained(envelope=facts.envelope(), run_id=RUN, sequence=3, version=6, metrics={}))
    rows = pooled([*THREE, *LATE]).pool
    found = {answer.ids: answer for answer in why(rows, runs, ASKED, call_id or trajectory_id)}
    answer = found["g", trajectory_id, *([call_id] if call_id else [])]
    assert (answer.state, answer.trained) == ("left_out", ())
    assert answer.lines[1:] == (f"  not in batch 3 of run run: {answer.lines[1].partition(': ')[2]}",)
    assert says in answer.lines[1]


def test_a_plan_of_a_spec_that_nobody_reads_any_more_is_still_told():
    """Another version of the code may have written it: what follows from the plan alone is said."""
    plan = replace(planned_batch(pooled(THREE).pool, SPEC), spec='{"of": "another version"}')
    runs = RunIndex()
    runs.apply(plan)
    (answer,) = why(pooled(THREE).pool, runs, None, "t0")
    assert answer.lines[1:] == ("  not in batch 3 of run run: the spec did not choose it",)


def test_a_plan_that_is_not_trained_yet_says_so():
    """Planned, without a version."""
    (answer,) = told("done", history(trained=False))
    assert (answer.state, answer.trained) == ("planned", ((RUN, 3, None),))


def test_low_quality_is_told():
    """A call under the spec's threshold is masked."""
    answer = {answer.ids: answer for answer in told("c0")}["turn", "t1", "c0"]
    assert answer.state == "left_out"
    assert any("quality 0.1 is below 0.5" in line for line in answer.lines)


CUT_OFF = [
    replace(event, finish_reason="length") if isinstance(event, CallCaptured) and event.trajectory_id == "t1" else event
    for event in group("g", [0.0, 1.0, 0.5], version=5)
]


@pytest.mark.parametrize(
    ("fields", "version", "name", "ids", "says"),
    [
        ({"truncated": "drop"}, 5, "t1", ("g", "t1"), "it is not counted (truncated: drop)"),
        ({"truncated": "mask"}, 5, "t1", ("g", "t1"), "is not trained itself: truncated"),
        ({"truncated": "mask"}, 5, "c0", ("g", "t1", "c0"), "is not trained itself: truncated"),
    ],
)
def test_a_reply_that_was_cut_off_is_told(fields, version, name, ids, says):
    """Its trajectory is not trained, or not even counted; of a plan the same is told by its spec."""
    spec = BatchSpec(groups_per_batch=1, group_size=2, **fields)
    rows = pooled(CUT_OFF).pool
    perspective = Perspective(run_id=RUN, version=version, spec=spec)
    answers = {answer.ids: answer for answer in why(rows, RunIndex(), perspective, name)}
    assert answers[ids].state == "left_out"
    assert says in answers[ids].lines[-1]
    answers = {answer.ids: answer for answer in why(rows, planned(rows, spec), None, name)}
    assert f"(truncated: {fields['truncated']})" in answers[ids].lines[-1]


def test_a_response_that_is_too_old_is_told():
    """Under `stale: tokens` its group is next, and it is not."""
    events = [
        replace(event, spans=(replace(event.spans[0], version=2),))
        if isinstance(event, CallCaptured) and event.call_id == "c0"
        else event
        for event in group("g", [0.0, 1.0], version=5)
    ]
    spec = BatchSpec(groups_per_batch=1, group_size=2, stale="tokens")
    rows = pooled(events).pool
    perspective = Perspective(run_id=RUN, version=5, spec=spec)
    answers = {answer.ids: answer for answer in why(rows, RunIndex(), perspective, "c0")}
    assert answers["g", "t0", "c0"].lines[-1] == "  masked: all its tokens are older than version 4 (too_old)"
    answers = {answer.ids: answer for answer in why(rows, planned(rows, spec), None, "c0")}
    assert "it was masked, not trainable then or older than version 4" in answers["g", "t0", "c0"].lines[-1]
    (c1, *_) = why(rows, planned(rows, spec), None, "c1")
    assert c1.state == "planned"


def test_logged_data_is_told_as_what_a_run_imitates():
    """Another run's greedy replies of an abandoned trajectory: next where anybody is imitated, not ready elsewhere."""
    events = [
        replace(event, sampling=replace(event.sampling, temperature=0.0)) if isinstance(event, CallCaptured) else event
        for event in group("g", [None], run="other")[:-1]
    ]
    rows = pooled([*events, facts.abandoned("g", "t0")]).pool
    logged = BatchSpec.model_validate({"preset": "sft_logged"})
    for spec, state in ((logged, "next"), (BatchSpec(), "not_ready")):
        perspective = Perspective(run_id=RUN, version=5, spec=spec)
        for name in ("t0", "c0"):
            (answer,) = why(rows, RunIndex(), perspective, name)
            assert answer.state == state, (name, answer.lines)


def test_what_became_of_a_group_is_the_fate_of_its_calls():
    """A group that the run skipped has no calls that are left out of it."""
    answers = {answer.ids: answer for answer in told("c0")}
    assert answers["old", "t1", "c0"].state == answers["old", "t0", "c0"].state == "skipped"
    assert not any("masked" in line for line in answers["old", "t1", "c0"].lines)


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
        (answer,) = why(rows, RunIndex(), Perspective(run_id=RUN, version=version, spec=SPEC), "quiet")
        assert answer.state == "left_out"
        assert says in answer.lines[-1]


def test_an_overfull_group_or_trajectory_says_how_many_found_no_room(monkeypatch):
    """The reason, the number, and what to do about it."""
    monkeypatch.setattr(bounds, "GROUP_MEMBERS_BYTES_MAX", 100)
    monkeypatch.setattr(bounds, "TRAJECTORY_CALLS_BYTES_MAX", 1)
    calls = [facts.call("wide", "t0", "second"), facts.call("wide", "t0", "third")]
    rows = pooled([*group("wide", [0.0, 1.0, 2.0]), *calls]).pool
    (answer,) = why(rows, RunIndex(), ASKED, "wide")
    assert answer.state == "not_ready"
    assert answer.lines[0].endswith("not ready (members_missing, no_ready_member, too_many_members)")
    assert answer.lines[1] == "  2 members more than its record holds: give each task a group id of its own"
    (answer,) = why(rows, RunIndex(), ASKED, "t0")
    assert "too_many_calls" in answer.lines[0]
    assert answer.lines[1] == "  3 calls more than its record holds: begin a trajectory for each task"


def test_calls_that_a_record_leaves_out_are_counted_beside_those_that_it_names(monkeypatch) -> None:
    """Or an agent would be told that calls have not come which have."""
    monkeypatch.setattr(bounds, "TRAJECTORY_CALLS_BYTES_MAX", 20)
    calls = [facts.call("g", "t", f"c{number}", received_us=number) for number in range(5)]
    pool = pooled([*calls, facts.completed("g", "t", calls=6)]).pool
    (answer,) = why(pool, RunIndex(), None, "t")
    assert "  calls: at most 5 captured, 6 counted by its completion: the others have not come" in answer.lines


STYLE = {"source": "judge", "name": "style"}
JUDGED = [
    *group("g", [0.0, 1.0, 1.0], version=5),
    *(facts.reward("g", "t0", value, source=f"human:{who}", name="ok") for who, value in (("a", 1.0), ("b", 0.0))),
    facts.reward("g", "t0", None, source="human:c", name="ok"),
    facts.reward("g", "t0", None, source="human:c", name="comment"),
    facts.reward("g", "t0", 1.0, **STYLE),
    facts.gave_up("g", "t1", call_id="c1"),
]


def judged(name, *words, **fields):
    spec = BatchSpec(group_size=2, groups_per_batch=1, rewards_required=("judge/style",), **fields)
    rows = pooled([*JUDGED, *words]).pool
    answers = why(rows, RunIndex(), Perspective(run_id=RUN, version=5, spec=spec), name)
    return {answer.ids: (answer.state, "\n".join(answer.lines)) for answer in answers}


def test_what_scorers_and_people_left_empty_or_said_together_is_told():
    """Taken back, given up with the reason and the call, and how many votes became which value; a comment is no reward."""
    text = judged("t0", reward_merge="latest")["g", "t0"][1]
    assert "reward human:c/ok taken back\n  2 people said ok: human:a/ok 1, human:b/ok 0; latest 0" in text
    assert "comment" not in text
    text = judged("t1")["g", "t1"][1]
    assert "reward judge/style failed (deadline) (call c1)" in text
    assert "it lacks a reward judge/style, which the spec requires: its scorer gave up (deadline)" in text
    assert "reward judge/style failed (deadline)" in judged("c1")["g", "t1", "c1"][1]


def test_a_scorer_that_has_nothing_to_say_is_told_from_a_word_taken_back():
    """In the slot, and where the spec requires it."""
    text = judged("t2", facts.reward("g", "t2", None, verdict=facts.verdict(), **STYLE))["g", "t2"][1]
    assert "reward judge/style nothing to say" in text
    assert "it lacks a reward judge/style, which the spec requires: its scorer has nothing to say" in text


def test_who_is_waited_for_and_who_is_left_out_is_told():
    """The group waits for the slot of t2; once that is there, it is trained without t1."""
    assert judged("g")["g",] == (
        "left_out",
        "group g: 3 of 3 members ready, ready\n  run run at version 5 waits: reward_required_for_1: judge/style",
    )
    assert "which the spec requires: nobody has given it yet" in judged("t2")["g", "t2"][1]
    late = facts.reward("g", "t2", 1.0, **STYLE)
    state, text = judged("g", late)["g",]
    assert (state, "  without t1: scoring_failed: judge/style deadline" in text) == ("next", True)
    state, text = judged("t1", late)["g", "t1"]
    assert (state, "it is not counted (scoring_failed: judge/style deadline)" in text) == ("left_out", True)


def test_what_a_plan_left_out_for_a_reward_is_told_from_the_plan():
    """Whatever the pool says today."""
    spec = BatchSpec(group_size=2, groups_per_batch=1, rewards_required=("judge/style",))
    rows = pooled([*JUDGED, facts.reward("g", "t2", 1.0, **STYLE)]).pool
    answers = why(rows, planned(rows, spec), Perspective(run_id=RUN, version=5, spec=spec), "t1")
    lines = "\n".join(line for answer in answers for line in answer.lines)
    assert "no ready member of its group then, or it lacked a reward (rewards_required: judge/style)" in lines


def test_a_run_that_is_started_behind_its_end_goes_on() -> None:
    """Whoever asks whether it is over hears the last word."""
    runs = RunIndex()
    ended = RunEnded(envelope=facts.envelope(), run_id=RUN, status="finished", batches=1, version=1)
    started = RunStarted(
        envelope=facts.envelope(), run_id=RUN, model_id="m", incarnation=2, config="{}", group_size=2,
        groups_per_batch=1, staleness_max=1, facts_prefix="claw",
    )  # fmt: skip
    for event, is_over in ((ended, True), (started, False), (ended, True)):
        runs.apply(event)
        assert (runs.runs[RUN].ended is not None) is is_over


def test_an_evicted_group_says_so():
    """A run trains it no more; its trajectories and calls are nobody's."""
    rows = pooled([*group("gone", [0.0, 1.0]), facts.evicted_group("gone", reason="asked to")]).pool
    (answer,) = why(rows, RunIndex(), ASKED, "gone")
    assert (answer.state, answer.lines[0]) == (
        "not_ready",
        "group gone: evicted (asked to); the facts of it stay in the log",
    )
    assert "does not train it: evicted" in "\n".join(answer.lines)
    assert list(why(rows, RunIndex(), ASKED, "t0")) == []


def test_a_group_whose_id_is_also_a_members_is_explained_beside_it():
    """What the group waits for may be another member."""
    rows = pooled(
        [
            facts.opened("g", expected_size=2),
            facts.call("g", "g", "c1"),
            facts.completed("g", "g", calls=1, reward=1.0),
            facts.call("g", "b", "c2"),
        ]
    ).pool
    answers = why(rows, RunIndex(), ASKED, "g")
    assert [answer.kind for answer in answers] == ["group", "trajectory"]
    assert any("member b: open, not ready" in line for line in answers[0].lines)
