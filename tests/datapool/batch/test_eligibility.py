"""Which groups a run may train, and the reason of each that it may not, on pools that the real folds made."""

import pytest
from msgspec.structs import replace

from claw_r1.datapool.batch.members import plan_bytes
from claw_r1.datapool.batch.selection import Selection, select
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.fold import bounds
from claw_r1.eventlog.records import Record
from claw_r1.gateway.control.admission import AdmissionView, Admitted
from claw_r1.schemas.codec import encode
from claw_r1.schemas.events import BatchSkipped, CallCaptured, Event, RunStarted, VersionSpan, WeightsPublished
from tests import facts
from tests.datapool.batch.selecting import SPACIOUS, SPEC, chosen, planned, selected
from tests.trainer.pooled import RUN, apply_to, group, pooled

TAGGED = SPEC.model_copy(update={"tags": ("maths",)})


@pytest.mark.parametrize(
    ("history", "spec", "version", "kind", "reason"),
    [
        (group("g", [0.0, 1.0], run="other"), SPEC, 0, "left_out", "other_run"),
        (group("g", [0.0, 1.0], channel="val"), SPEC, 0, "left_out", "other_channel: val"),
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


def test_a_reward_given_to_another_call_makes_no_variance() -> None:
    """Three rewards, the second to one call or the next: the returns are 0.6000000000000001 and 0.6, and equal."""
    history = group("g", [None, None])
    for trajectory, middle in (("t0", "c0"), ("t1", "c1")):
        for name, value, call_id in (("a", 0.1, "c0"), ("b", 0.2, middle), ("c", 0.3, "c1")):
            history.append(facts.reward("g", trajectory, value, source="rule", name=name, call_id=call_id))
    selection = selected(history, SPEC.model_copy(update={"zero_variance": "drop"}))
    assert selection.skipped == {"g": "zero_variance"}


@pytest.mark.parametrize(("value", "members"), [(0.1, 3), (0.1, 10), (0.3, 6), (0.03, 9), (0.7, 11)])
def test_a_group_whose_mean_is_the_bound_passes(value: float, members: int) -> None:
    """Both bounds count in. The sum of equal returns is rounded, and so is even the exact sum: their mean is not."""
    spec = SPEC.model_copy(update={"reward_mean_min": value, "reward_mean_max": value, "groups_per_batch": 1})
    assert chosen(selected(group("g", [value] * members), spec)) == ["g"]


def session(name: str, reward: float | None, version: int = 0) -> list[Event]:
    """What is left of a caller that names no run, opens no group and completes nothing."""
    spans = (VersionSpan(run_id=RUN, version=version, start=0, end=3),)
    history: list[Event] = [
        facts.started(name, name, idle_s=600.0),
        facts.call(name, name, spans=spans),
        facts.completed(name, name),
    ]
    judged = [] if reward is None else [facts.reward(name, name, reward, source="user")]
    return [facts.changed_envelope(event, run_id=None) for event in (*history, *judged)]


def test_sessions_of_nobody_are_groups_of_one_that_wait_for_feedback() -> None:
    """`reinforce_pp` trains those that were judged, against each other; an unjudged one waits until it is too stale."""
    spec = BatchSpec.model_validate({"preset": "reinforce_pp", "groups_per_batch": 2})
    history = [*session("good", 1.0, 3), *session("bad", 0.0, 3), *session("mute", None, 3), *session("old", None, 1)]
    selection = selected(history, spec, version=3)
    assert (chosen(selection), selection.left_out) == (["bad", "good"], {"mute": "reward_missing_for_1"})
    assert selection.skipped == {"old": "too_stale"}
    advantages = {one.trajectory_id: one.advantage for one in planned(selection, spec).trajectories}
    assert advantages["good"] == -advantages["bad"] > 0


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
    assert selected(own, spec).skipped == {"g": "other_channel: train"}
    for foreign in (own[:-1], own[1:], group("g", [0.0, 1.0], run="other"), group("g", [0.0, 1.0], channel="easy")):
        assert selected(foreign, spec).foreign == {"g"}
    named = [replace(fact, channel="hard") if isinstance(fact, CallCaptured) else fact for fact in own]
    assert chosen(selected(named, spec)) == ["g"]


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


def admitting(spec: BatchSpec) -> AdmissionView:
    """The gateway's view of a run that has just started."""
    admission = AdmissionView()
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
    tell(admission, started, weights)
    return admission


def tell(admission: AdmissionView, *events: Event) -> None:
    for event in events:
        admission.apply(Record("", 0, 0, 0, b"", encode(event)))


@pytest.mark.parametrize("knob", [{"tags": ("maths",)}, {"tags_exclude": ("probe",)}], ids=["missing", "excluded"])
def test_groups_that_the_spec_leaves_out_by_tags_give_their_room_back(knob: dict[str, tuple[str, ...]]) -> None:
    """Any number of them may be opened one after the other, and those that the run wants find room beside them."""
    spec, world, settled = SPEC.model_copy(update=knob), pooled([]), set[str]()
    admission = admitting(spec)

    def play(name: str, at_us: int, tag: str) -> Selection:
        assert admission.reserve(RUN, name) == Admitted(), name
        apply_to(world.pool, world.log, group(name, [0.0, 1.0], at_us=at_us, tags=(tag,)))
        selection = select(world.pool, spec, 0, RUN, settled)
        tell(admission, world.pool.group(name))
        skipped = tuple(selection.skipped)
        tell(admission, BatchSkipped(envelope=facts.envelope(), run_id=RUN, group_ids=skipped, reason="tags"))
        settled.update(selection.skipped)
        return selection

    for number in range(20):
        play(f"g{number}", number, "probe")
    assert not play("first", 20, "maths").complete
    assert chosen(play("second", 21, "maths")) == ["first", "second"]


def test_after_a_burst_of_failed_episodes_the_right_ones_are_opened_and_trained_at_once() -> None:
    """A runner with a wrong model fails every call of 20 groups; the next one finds room before any deadline."""
    world, admission = pooled([]), admitting(SPEC)

    def play(name: str, history: list[Event]) -> None:
        assert admission.reserve(RUN, name) == Admitted(), name
        apply_to(world.pool, world.log, history)
        tell(admission, world.pool.group(name))

    for number in range(20):
        name = f"wrong{number}"
        burst: list[Event] = [
            facts.opened(name, envelope=facts.envelope(run_id=RUN), expected_size=2, deadline_us=10**12)
        ]
        for t in ("t0", "t1"):
            burst += [facts.failure(name, t, http_status=404), facts.completed(name, t, status="failed", calls=0)]
        play(name, burst)
    for name in ("first", "second"):
        play(name, group(name, [0.0, 1.0], deadline_us=10**12))
    assert chosen(select(world.pool, SPEC, 0, RUN, ())) == ["first", "second"]


def test_a_closed_group_is_trained_with_the_members_it_has() -> None:
    """A group that a reactor closed trains its ready members, if two are there."""
    history = group("g", [0.0, 1.0], expected_size=4)
    assert chosen(selected([*history, facts.closed("g", ["t0", "t1"])])) == ["g"]
    assert selected([*history, facts.closed("g", ["t0"])]).skipped == {"g": "closed_with_1_ready"}


def test_a_group_that_no_plan_has_room_for_is_skipped_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would end its trainer at every start; the groups behind it are planned."""
    history = group("a", [0.0, 1.0, 2.0]) + group("b", [0.0, 1.0], at_us=1)
    large, small = (plan_bytes(one, SPACIOUS) for one in selected(history, SPACIOUS).chosen)
    assert large > small
    monkeypatch.setattr(bounds, "PLAN_BYTES_MAX", small)
    selection = selected(history, SPACIOUS)
    assert (selection.skipped, chosen(selection)) == ({"a": "larger_than_a_plan"}, ["b"])
