"""Lineage: plans and publications on a real log, read both ways."""

import pytest
from msgspec.structs import replace

from claw_r1.claw.data.lineage import answer_of, as_text
from claw_r1.eventlog.kafka.admin import delete_records
from claw_r1.eventlog.records import Outgoing, Position
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.events import (
    BatchAssembled,
    BatchSkipped,
    BatchTrained,
    Event,
    FactPosition,
    PlannedStep,
    PlannedTrajectory,
    StepRecord,
    WeightsPublished,
)
from claw_r1.schemas.keys import step_key
from claw_r1.schemas.topics import BATCHES, STEPS, WEIGHTS
from tests import facts
from tests.consumers import published

pytestmark = pytest.mark.kafka


def planned(place: Position, group: str, call_id: str, *, trained: bool = True) -> PlannedTrajectory:
    at = FactPosition(topic=place.topic, partition=place.partition, offset=place.offset)
    step = PlannedStep(call_id=call_id, position=at, digest="", trained=trained)
    return PlannedTrajectory(group_id=group, trajectory_id=f"{group}-t", reward=1.0, advantage=0.5, steps=(step,))


def plan(sequence: int, *trajectories: PlannedTrajectory, run_id: str = "run") -> Event:
    return BatchAssembled(
        envelope=facts.envelope(),
        run_id=run_id,
        sequence=sequence,
        version=sequence,
        spec="{}",
        trajectories=trajectories,
        seed=0,
    )


def trained(sequence: int, version: int, run_id: str = "run") -> Event:
    return BatchTrained(envelope=facts.envelope(), run_id=run_id, sequence=sequence, version=version, metrics={})


def weights(version: int, sequence: int | None, run_id: str = "run") -> Event:
    return WeightsPublished(
        envelope=facts.envelope(),
        model_id="tiny",
        run_id=run_id,
        version=version,
        digest=f"{version:064d}",
        bytes_total=1,
        manifest=(),
        sequence=sequence,
    )


def write(settings: LogSettings, *events: Event) -> None:
    """Each on its topic."""
    topics = {WeightsPublished: WEIGHTS}
    published.publish(settings, [Outgoing.of(topics.get(type(event), BATCHES), b"run", event) for event in events])


@pytest.fixture
def run(log_settings: LogSettings) -> LogSettings:
    """Two batches of one call each made versions 1 and 2; a third is planned; a group was skipped, another is unplanned."""
    calls = [published.chat_call(f"g{n}", f"g{n}-t", f"c{n}", [1, 2], [3, 4]) for n in range(4)]
    places = published.say(log_settings, *calls)
    write(
        log_settings,
        weights(0, None),
        *(plan(n, planned(places[n], f"g{n}", f"c{n}")) for n in range(3)),
        *(trained(n, n + 1) for n in range(2)),
        *(weights(n + 1, n) for n in range(2)),
        BatchSkipped(envelope=facts.envelope(), run_id="run", group_ids=("g3",), reason="too_stale"),
    )
    row = StepRecord(group_id="g3", trajectory_id="g3-t", call_id="c3")
    published.publish(log_settings, [Outgoing.of(STEPS, step_key("g3", "g3-t", "c3"), row)])
    return log_settings


def test_a_version_leads_to_its_requests(run: LogSettings) -> None:
    """version -> batch -> group -> call -> position and request; `every` goes back to the first batch."""
    answer, code = answer_of(run, "run/2", every=False)
    assert (code, answer["kind"], answer["weights"]["sequence"]) == (0, "version", 1)
    (batch,) = answer["batches"]
    (step,) = batch["trajectories"][0]["steps"]
    assert (batch["sequence"], batch["made_version"], step["call_id"]) == (1, 2, "c1")
    assert step["sampled_by"] == ["run/3"]
    assert step["request"]["asked"] == "1 2"
    whole, _ = answer_of(run, "run/2", every=True)
    assert [batch["sequence"] for batch in whole["batches"]] == [1, 0]
    assert "version run/2 of tiny" in "\n".join(as_text(whole))


@pytest.mark.parametrize(("name", "kind"), [("c0", "call"), ("g0-t", "trajectory"), ("g0", "group")])
def test_a_call_leads_to_the_versions_trained_on_it(run: LogSettings, name: str, kind: str) -> None:
    """Every published version from the batch's own on holds it."""
    answer, code = answer_of(run, name, every=False)
    (batch,) = answer["batches"]
    assert (code, answer["kind"]) == (0, kind)
    assert (batch["made_version"], batch["first_version"], batch["last_version"]) == (1, 1, 2)


def test_what_was_not_trained_says_why(run: LogSettings) -> None:
    """A plan that is not trained yet, a skipped group, an unknown id: exit code 1, each told apart."""
    waiting, code = answer_of(run, "c2", every=False)
    assert (code, waiting["batches"][0]["made_version"]) == (1, None)
    skipped, code = answer_of(run, "c3", every=False)
    assert (code, skipped["kind"]) == (1, "call")
    assert skipped["skipped"] == [{"run_id": "run", "group_id": "g3", "reason": "too_stale"}]
    nothing, code = answer_of(run, "nobody", every=False)
    assert (code, nothing["kind"], nothing["batches"]) == (1, "unknown", [])
    initial, code = answer_of(run, "run/0", every=False)
    assert (code, initial["batches"]) == (0, [])
    assert answer_of(run, "run/9", every=False)[1] == 1


def test_a_batch_that_was_given_up_is_in_no_version(run: LogSettings) -> None:
    """Later versions do not hold it, though their batches have higher numbers; its group was skipped."""
    fields = {"run_id": "run", "group_ids": ("g2",), "reason": "plan_unreadable: facts_cut", "sequence": 2}
    row = StepRecord(group_id="g2", trajectory_id="g2-t", call_id="c2")
    published.publish(run, [Outgoing.of(STEPS, step_key("g2", "g2-t", "c2"), row)])
    write(run, BatchSkipped(envelope=facts.envelope(), **fields), plan(3), trained(3, 3), weights(3, 3))
    answer, code = answer_of(run, "c2", every=False)
    assert (code, answer["batches"]) == (1, [])
    assert answer["skipped"] == [{"run_id": "run", "group_id": "g2", "reason": "plan_unreadable: facts_cut"}]
    whole, _ = answer_of(run, "run/3", every=True)
    assert [batch["sequence"] for batch in whole["batches"]] == [3, 1, 0]


def test_a_call_that_retention_removed_is_still_named(run: LogSettings) -> None:
    """The plan knows the call though its fact is gone."""
    answer, _ = answer_of(run, "c0", every=False)
    place = answer["batches"][0]["trajectories"][0]["steps"][0]["position"]
    delete_records(run, {(place["topic"], place["partition"]): place["offset"] + 1})
    answer, code = answer_of(run, "c0", every=False)
    step = answer["batches"][0]["trajectories"][0]["steps"][0]
    assert (code, step["request"], step["sampled_by"]) == (0, None, None)
    assert "retention removed the call" in "\n".join(as_text(answer))


def test_a_limit_bounds_what_is_shown_and_counts_the_rest(log_settings: LogSettings) -> None:
    """The first trajectories in the order of the batches; text and JSON say how many are left out, and of how many batches."""
    places = published.say(
        log_settings, *(published.chat_call(f"g{n}", f"g{n}-t", f"c{n}", [1, 2], [3]) for n in range(6))
    )
    whole = [planned(places[n], f"g{n}", f"c{n}") for n in range(6)]
    write(log_settings, *(plan(n, *whole[n * 2 : n * 2 + 2]) for n in range(3)))
    write(log_settings, *(trained(n, n + 1) for n in range(3)), weights(3, 2))
    answer, code = answer_of(log_settings, "run/3", every=True, limit=3)
    assert (code, answer["left_out"]) == (0, {"batches": 1, "trajectories": 3})
    assert [[one["group_id"] for one in batch["trajectories"]] for batch in answer["batches"]] == [["g4", "g5"], ["g2"]]
    assert list(as_text(answer))[-1] == "  and 3 more trajectories, 1 more batches: --limit shows more"
    everything, _ = answer_of(log_settings, "run/3", every=True)
    assert everything["left_out"] == {"batches": 0, "trajectories": 0}
    assert "more trajectories" not in "\n".join(as_text(everything))


def test_what_a_plan_says_of_losses_and_old_tokens_is_shown(log_settings: LogSettings) -> None:
    """Weights and reward of the call, and from which version on tokens were trained."""
    (place,) = published.say(log_settings, published.chat_call("g", "g-t", "c", [1, 2], [3, 4]))
    trajectory = planned(place, "g", "c")
    step = replace(trajectory.steps[0], reward=1.0, weights=(0.0, 1.0, 0.5))
    batch = replace(plan(0, replace(trajectory, steps=(step,))), oldest_version=0)
    write(log_settings, weights(0, None), batch, trained(0, 1), weights(1, 0))
    answer, _ = answer_of(log_settings, "run/1", every=False)
    (shown,) = answer["batches"]
    assert shown["oldest_version"] == 0
    assert [shown["trajectories"][0]["steps"][0][name] for name in ("reward", "weights")] == [1.0, (0.0, 1.0, 0.5)]
    text = "\n".join(as_text(answer))
    assert "tokens older than version 0 were context" in text
    assert "trained with weights 0, 1, 0.5 call c" in text
