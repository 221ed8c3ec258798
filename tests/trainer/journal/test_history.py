"""The fold over a run's own events."""

import tracemalloc

from msgspec.structs import replace

from claw_r1.schemas.events import (
    BatchAssembled,
    BatchSkipped,
    BatchTrained,
    PlannedTrajectory,
    RunStarted,
    WeightsPublished,
)
from claw_r1.trainer.journal.history import History, history_of
from tests import facts


def started(run="run"):
    return RunStarted(
        envelope=facts.envelope(), run_id=run, model_id="m", incarnation=1, config="{}",
        group_size=2, groups_per_batch=2, staleness_max=1, facts_prefix="claw",
    )  # fmt: skip


def published(version, digest="d", run="run"):
    return WeightsPublished(
        envelope=facts.envelope(), model_id="m", run_id=run, version=version, digest=digest, bytes_total=1, manifest=()
    )


def trained(sequence, reward=0.5):
    return BatchTrained(
        envelope=facts.envelope(), run_id="run", sequence=sequence, version=sequence + 1, metrics={"reward": reward}
    )


def test_nothing_happened():
    """An unknown run has no incarnation, and version 0 is free."""
    history = history_of([], "run")
    assert (history.incarnations, history.version_free, history.ended) == (0, 0, None)


def test_other_runs_are_passed_over():
    """Two runs may share topics and model; each sees its own."""
    history = history_of([started(), started("other"), published(0), published(7, run="other")], "run")
    assert (history.incarnations, history.version_free) == (1, 1)


def test_version_numbers_are_never_free_again():
    """The free number is above every number that was published, in whatever order."""
    assert history_of([published(3), published(1)], "run").version_free == 4


def test_skipped_groups_are_settled():
    """What was skipped is not planned later."""
    skip = BatchSkipped(envelope=facts.envelope(), run_id="run", group_ids=("a", "b"), reason="too_stale")
    assert history_of([skip], "run").settled == {"a", "b"}


def test_a_batch_that_was_given_up_keeps_its_number():
    """It is no gap: its groups are consumed like any skipped ones, and its sequence is not planned again."""
    fields = {"run_id": "run", "group_ids": ("a",), "reason": "plan_unreadable: facts_cut"}
    history = history_of([BatchSkipped(envelope=facts.envelope(), sequence=3, **fields)], "run")
    assert (history.given_up, history.settled) == ({3}, {"a"})


def test_batches_that_were_trained_before_another():
    """In order of sequence, without the batch itself."""
    history = history_of([trained(1, 0.3), trained(0, 0.1), trained(2, 0.9)], "run")
    assert [event.sequence for event in history.trained_before(2)] == [0, 1]


def plan(sequence, groups=2):
    trajectory = PlannedTrajectory(group_id="", trajectory_id="t", reward=0.0, advantage=0.0, steps=())
    return BatchAssembled(
        envelope=facts.envelope(), run_id="run", sequence=sequence, version=sequence, spec="{}", seed=0,
        trajectories=tuple(replace(trajectory, group_id=f"g{sequence}-{n}") for n in range(groups)),
    )  # fmt: skip


def skipped(number):
    return BatchSkipped(envelope=facts.envelope(), run_id="run", group_ids=(f"s{number}",), reason="too_stale")


def batch(sequence):
    return plan(sequence), published(sequence + 1), trained(sequence), skipped(sequence)


def test_plans_that_a_checkpoint_holds_are_forgotten():
    """All but their number and their groups, which no later batch may have."""
    history = history_of([plan(0), plan(1), plan(2)], "run", plans_after=1)
    assert list(history.plans) == [2]
    assert history.sequence_free == 3
    assert history.settled == {f"g{sequence}-{n}" for sequence in range(3) for n in range(2)}


def test_the_newest_export_is_remembered():
    """By version, not by time: weights that are announced again have no export at first."""
    first, second = (replace(published(version), checkpoint_uri=f"file:///{version}") for version in (1, 2))
    assert history_of([second, first, published(3)], "run").exported.checkpoint_uri == "file:///2"


def bytes_to_read(batches):
    """Of memory that taking the events of so many batches asks for, in all, whether it is given back or not."""
    made, history, total = [event for n in range(batches) for event in batch(n)], History(), 0
    tracemalloc.start()
    for event in made:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        history.take(event)
        total += tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return total


def test_twice_the_events_are_twice_the_work():
    """Not four times: no event copies what came before it."""
    assert bytes_to_read(1000) < 2.5 * bytes_to_read(500)
