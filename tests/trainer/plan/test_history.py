"""The fold over a run's own events."""

from schemas.events import BatchSkipped, BatchTrained, RunStarted, WeightsPublished
from tests import facts
from trainer.plan.history import history_of


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
    assert history_of([skip], "run").consumed_groups == {"a", "b"}


def test_a_batch_that_was_given_up_keeps_its_number():
    """It is no gap: its groups are consumed like any skipped ones, and its sequence is not planned again."""
    fields = {"run_id": "run", "group_ids": ("a",), "reason": "plan_unreadable: facts_cut"}
    history = history_of([BatchSkipped(envelope=facts.envelope(), sequence=3, **fields)], "run")
    assert (history.given_up, history.consumed_groups) == ({3}, {"a"})


def test_rewards_before_a_batch():
    """In order of sequence, without the batch itself."""
    assert history_of([trained(1, 0.3), trained(0, 0.1), trained(2, 0.9)], "run").rewards(before=2) == [0.1, 0.3]
