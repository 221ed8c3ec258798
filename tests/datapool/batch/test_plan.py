"""Selection and plan, on pools that the real folds made."""

import pytest
from msgspec.structs import replace

from datapool.batch.plan import Selection, assemble, groups_of, select
from datapool.batch.selection import plan_bytes
from datapool.batch.spec import BatchSpec
from datapool.fold import bounds
from datapool.fold.digests import call_digest
from eventlog.records import Record
from gateway.control.admission import AdmissionView, Admitted
from schemas.codec import encode
from schemas.events import BatchAssembled, BatchSkipped, CallCaptured, Event, RunStarted, VersionSpan, WeightsPublished
from tests import facts
from tests.trainer.pooled import RUN, apply_to, group, pooled
from trainer.plan.history import history_of

SPEC = BatchSpec(algorithm="dr_grpo", groups_per_batch=2, group_size=2, staleness_max=1)


def selected(
    history: list[Event], spec: BatchSpec = SPEC, version: int = 0, planned: set[str] = frozenset()
) -> Selection:
    return select(pooled(history).pool, spec, version, RUN, planned)


def chosen(selection: Selection) -> list[str]:
    return [one.record.group_id for one in selection.chosen]


def planned(selection: Selection, spec: BatchSpec = SPEC) -> BatchAssembled:
    return assemble(
        selection.chosen,
        spec,
        run_id=RUN,
        sequence=4,
        version=1,
        seed=7,
        envelope=facts.envelope("plan"),
    )


def test_first_in_first_out_and_the_rest_is_next() -> None:
    """The groups whose last fact is oldest make the batch; later ones wait for the next, with that reason."""
    history = [e for name, at in (("c", 3), ("a", 2), ("b", 1)) for e in group(name, [0.0, 1.0], at_us=at)]
    selection = selected(history)
    assert chosen(selection) == ["b", "a"]
    assert selection.left_out == {"c": "next_batch"}
    assert selection.complete


def test_a_short_batch_is_not_complete() -> None:
    """Fewer ready groups than the spec asks for: wait."""
    selection = selected(group("a", [0.0, 1.0]))
    assert chosen(selection) == ["a"]
    assert not selection.complete


def test_a_group_is_planned_once() -> None:
    """What the run planned before is neither chosen again nor reported."""
    selection = selected(group("a", [0.0, 1.0]) + group("b", [0.0, 1.0]), planned={"a"})
    assert chosen(selection) == ["b"]
    assert "a" not in selection.left_out


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
    assert chosen(select(after.pool, SPEC, 1, RUN, history_of([plan], RUN).settled_groups)) == []
    steps = [step for trajectory in plan.trajectories for step in trajectory.steps]
    for step in steps:
        at = step.position
        (record,) = after.log.read_range(at.topic, at.partition, at.offset, at.offset + 1)
        assert call_digest(record.event()) == step.digest
    assert planned(select(after.pool, SPEC, 0, RUN, ())).trajectories != plan.trajectories, (
        "a run of its own would see it"
    )


@pytest.mark.parametrize(
    ("history", "spec", "version", "kind", "reason"),
    [
        (group("g", [0.0, 1.0], run="other"), SPEC, 0, "left_out", "other_run"),
        (group("g", [0.0, 1.0], channel="val"), SPEC, 0, "left_out", "channel_val"),
        (group("g", [0.0, 1.0], expected_size=3), SPEC, 0, "left_out", "not_ready"),
        (group("g", [0.0, None]), SPEC, 0, "left_out", "reward_missing_for_1"),
        (group("g", [0.0, 1.0], expected_size=None), SPEC.model_copy(update={"group_size": 3}), 0, "left_out", "members_2_of_3"),
        (group("g", [0.0, 1.0]), SPEC.model_copy(update={"tags": ("maths",)}), 0, "left_out", "tags_missing: maths"),
        (group("g", [0.0, 1.0], version=1), SPEC, 3, "skipped", "too_stale"),
        (group("g", [0.0, 1.0], version=5), SPEC, 3, "skipped", "sampled_by_unknown_version_5"),
        (group("g", [0.0], version=1)[1:], SPEC, 3, "skipped", "too_stale"),
        ([*group("g", [0.0, None]), facts.closed("g", ["t0", "t1"])], SPEC, 0, "skipped", "reward_missing"),
        (group("g", [0.0]), SPEC, 0, "skipped", "declared_with_one_member"),
        (group("g", [0.0, 0.0]), SPEC.model_copy(update={"reward_mean_min": 0.1}), 0, "skipped", "reward_mean_low"),
        (group("g", [1.0, 1.0]), SPEC.model_copy(update={"reward_mean_max": 0.9}), 0, "skipped", "reward_mean_high"),
        (group("g", [1.0, 1.0]), SPEC.model_copy(update={"zero_variance": "drop"}), 0, "skipped", "zero_variance"),
        (group("g", [0.0, 1.0]), SPEC.model_copy(update={"response_tokens_max": 9}), 0, "skipped", "larger_than_response_tokens_max"),
    ],
)  # fmt: skip
def test_every_group_left_out_has_its_reason(
    history: list[Event], spec: BatchSpec, version: int, kind: str, reason: str
) -> None:
    """What may still come is left out; what never will for this run is skipped; both say why."""
    selection = selected(history, spec, version)
    assert selection.chosen == ()
    (told,) = getattr(selection, kind).values()
    assert told.startswith(reason)
    assert not selection.left_out or not selection.skipped


def test_staleness_is_counted_from_the_oldest_token() -> None:
    """A group is as stale as its oldest version: exactly the bound passes, one more does not."""
    assert chosen(selected(group("g", [0.0, 1.0], version=2), version=3)) == ["g"]
    assert selected(group("g", [0.0, 1.0], version=2), version=4).skipped == {"g": "too_stale"}


def test_tokens_of_another_run_are_never_trained() -> None:
    """A group of ours in which one call was sampled by another policy is skipped, so that its capacity returns."""
    history = group("g", [0.0, 1.0])
    spans = (VersionSpan(run_id="base", version=0, start=0, end=3),)
    odd = facts.call(
        "g", "t0", "c0", ids=(5, 6, 7), prompt=facts.edge([1, 2]), spans=spans, envelope=facts.envelope("0")
    )
    selection = selected([odd, *[e for e in history if getattr(e, "call_id", None) != "c0" or e.trajectory_id != "t0"]])
    assert selection.skipped["g"].startswith("policy_of_other_run")


@pytest.mark.parametrize("rewards", [[0.0, 1.0], [0.0]], ids=["ready", "played"])
def test_a_group_with_an_excluded_tag_gives_its_room_back_at_once(rewards: list[float]) -> None:
    """Nothing takes a group's own tag back. A group that was opened for no run takes no room: it is another spec's."""
    spec = SPEC.model_copy(update={"tags_exclude": ("probe",)})
    own = group("g", rewards, tags=("probe",), expected_size=2)
    assert selected(own, spec).skipped == {"g": "tags_excluded: probe"}
    nobodys = [facts.changed_envelope(fact, run_id=None) for fact in own]
    assert not selected(nobodys, spec).skipped
    assert selected(group("g", rewards, tags=("probe",), run="other"), spec).foreign == {"g"}


def test_a_group_of_the_run_in_the_channel_that_counts_gives_its_room_back_where_the_spec_names_another() -> None:
    """Once it is ready: until then a call may name the spec's channel, and so the group's. What takes no room is foreign."""
    spec = SPEC.model_copy(update={"channel": "hard"})
    own = group("g", [0.0, 1.0])
    assert selected(own, spec).skipped == {"g": "channel_train"}
    for foreign in (own[:-1], own[1:], group("g", [0.0, 1.0], run="other"), group("g", [0.0, 1.0], channel="easy")):
        assert selected(foreign, spec).foreign == {"g"}
    named = [replace(fact, channel="hard") if isinstance(fact, CallCaptured) else fact for fact in own]
    assert chosen(selected(named, spec)) == ["g"]


TAGGED = SPEC.model_copy(update={"tags": ("maths",)})


def test_a_group_without_the_tags_waits_for_a_curation_until_it_is_too_stale() -> None:
    """Its steps may be given them, as long as the run may still train it; afterwards its room returns."""
    history = group("g", [0.0, 1.0], version=1)
    waiting = selected(history, TAGGED, version=2)
    assert (waiting.left_out, waiting.foreign) == ({"g": "tags_missing: maths"}, frozenset())
    curated = [facts.curated("g", trajectory, "c0", tags=("maths",)) for trajectory in ("t0", "t1")]
    assert chosen(selected([*history, *curated], TAGGED, version=2)) == ["g"]
    assert selected(history, TAGGED, version=3).skipped == {"g": "too_stale"}
    assert selected(group("g", [0.0, 1.0], run="other"), TAGGED).foreign == {"g"}


def test_groups_without_the_tags_leave_room_for_a_batch_of_others() -> None:
    """Of those that wait for a curation the newest staleness_max x groups_per_batch stay: a version that nobody can train
    makes nothing stale, so that they would keep all the room of the run."""
    history = [fact for n in range(5) for fact in group(f"g{n}", [0.0, 1.0], at_us=n)]
    for order in ("fifo", "newest"):
        selection = selected(history, TAGGED.model_copy(update={"order": order}))
        assert selection.skipped == dict.fromkeys(["g0", "g1", "g2"], "tags_missing: maths")
        assert selection.left_out == dict.fromkeys(["g3", "g4"], "tags_missing: maths")
    undeclared = [fact for n in range(5) for fact in group(f"g{n}", [0.0, 1.0], at_us=n)[1:]]
    assert not selected(undeclared, TAGGED).skipped, "they take no room"


@pytest.mark.parametrize("knob", [{"tags": ("maths",)}, {"tags_exclude": ("probe",)}], ids=["missing", "excluded"])
def test_groups_that_the_spec_leaves_out_by_tags_give_their_room_back(knob: dict[str, tuple[str, ...]]) -> None:
    """Any number of them may be opened one after the other, and those that the run wants find room beside them."""
    spec, world, admission, settled = SPEC.model_copy(update=knob), pooled([]), AdmissionView(), set[str]()
    started = RunStarted(
        envelope=facts.envelope(),
        run_id=RUN,
        model_id="m",
        incarnation=0,
        config="{}",
        group_size=2,
        groups_per_batch=spec.groups_per_batch,
        staleness_max=spec.staleness_max,
        facts_prefix="claw",
    )
    weights = WeightsPublished(
        envelope=facts.envelope(), model_id="m", run_id=RUN, version=0, digest="", bytes_total=0, manifest=()
    )

    def tell(*events: Event) -> None:
        for event in events:
            admission.apply(Record("", 0, 0, 0, b"", encode(event)))

    def play(name: str, at_us: int, tag: str) -> Selection:
        assert admission.reserve(RUN, name) == Admitted(), name
        apply_to(world.pool, world.log, group(name, [0.0, 1.0], at_us=at_us, tags=(tag,)))
        selection = select(world.pool, spec, 0, RUN, settled)
        tell(world.pool.group(name))
        tell(BatchSkipped(envelope=facts.envelope(), run_id=RUN, group_ids=tuple(selection.skipped), reason="tags"))
        settled.update(selection.skipped)
        return selection

    tell(started, weights)
    for number in range(20):
        play(f"g{number}", number, "probe")
    assert not play("first", 20, "maths").complete
    assert chosen(play("second", 21, "maths")) == ["first", "second"]


def test_a_closed_group_is_trained_with_the_members_it_has() -> None:
    """A group that a reactor closed trains its ready members, if two are there."""
    history = group("g", [0.0, 1.0], expected_size=4)
    assert chosen(selected([*history, facts.closed("g", ["t0", "t1"])])) == ["g"]
    assert selected([*history, facts.closed("g", ["t0"])]).skipped == {"g": "closed_with_1_ready"}


def test_the_token_bound_makes_a_batch_complete() -> None:
    """A batch that is full of tokens does not wait for more groups."""
    history = group("a", [0.0, 1.0], at_us=1) + group("b", [0.0, 1.0], at_us=2)
    selection = selected(history, SPEC.model_copy(update={"response_tokens_max": 15}))
    assert chosen(selection) == ["a"]
    assert selection.complete


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


def test_curated_steps_are_context_only() -> None:
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


SPACIOUS = BatchSpec(algorithm="dr_grpo", groups_per_batch=9, group_size=2)


def test_a_plan_stops_where_its_record_would_get_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of fewer groups is a whole one then; the next begins with the group that found no room."""
    history = [event for at, name in enumerate("abcd") for event in group(name, [0.0, 1.0], at_us=at)]
    one = plan_bytes(selected(history, SPACIOUS).chosen[0], SPACIOUS)
    monkeypatch.setattr(bounds, "PLAN_BYTES_MAX", 3 * one)
    selection = selected(history, SPACIOUS)
    assert (chosen(selection), selection.complete) == (["a", "b", "c"], True)
    assert selection.left_out == {"d": "next_batch"}


def test_a_group_that_no_plan_has_room_for_is_skipped_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would end its trainer at every start; the groups behind it are planned."""
    history = group("a", [0.0, 1.0, 2.0]) + group("b", [0.0, 1.0], at_us=1)
    large, small = (plan_bytes(one, SPACIOUS) for one in selected(history, SPACIOUS).chosen)
    assert large > small
    monkeypatch.setattr(bounds, "PLAN_BYTES_MAX", small)
    selection = selected(history, SPACIOUS)
    assert (selection.skipped, chosen(selection)) == ({"a": "larger_than_a_plan"}, ["b"])


@pytest.mark.parametrize("name", ["a", "\U0001d535" * 500])
def test_a_plan_takes_no_more_than_was_counted(name: str) -> None:
    """So what is counted keeps every plan below the largest record."""
    selection = selected(group(name, [0.0, 1.0, 0.25]), SPACIOUS)
    empty = len(encode(planned(Selection((), {}, {}, False), SPACIOUS)))
    (one,) = selection.chosen
    taken = len(encode(planned(selection, SPACIOUS))) - empty
    assert taken <= plan_bytes(one, SPACIOUS) < 2 * taken + 1000
