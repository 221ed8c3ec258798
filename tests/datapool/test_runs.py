"""Runs folded from their events: what each counts for, and whether a run still runs."""

import time

import pytest

from claw_r1.datapool.runs import Run, RunIndex, runs_of
from claw_r1.eventlog.records import Record
from claw_r1.schemas.events import BatchSkipped
from tests import facts
from tests.consumers.runs import observed


def folded(*events: object) -> Run:
    return runs_of(observed.records(events))["run"]


def test_a_run_is_the_sum_of_its_events() -> None:
    """Batches in order, reasons without their numbers, the last export of a version, the best evaluation."""
    skipped = [
        BatchSkipped(envelope=facts.envelope(), run_id="run", group_ids=("a", "b"), reason="closed_with_1_ready"),
        BatchSkipped(envelope=facts.envelope(), run_id="run", group_ids=("c",), reason="closed_with_0_ready: x"),
        BatchSkipped(
            envelope=facts.envelope(), run_id="run", group_ids=("d",), reason="plan_unreadable: cut", sequence=2
        ),
    ]
    run = folded(
        observed.started(config='{"a": {"b": 1}}'),
        observed.trained(1, 0.4),
        observed.trained(0, 0.2),
        *skipped,
        observed.evaluated(1, 0.5, best=True, uri="file:///best"),
        observed.evaluated(2, 0.4, best=False),
    )
    for event in (observed.weights(2, "file:///2"), observed.weights(2), observed.weights(3)):
        run.take(event)
    assert [batch.sequence for batch in run.batches] == [0, 1]
    assert dict(run.skip_reasons) == {"closed_with_N_ready": 3, "plan_unreadable": 1}
    assert run.given_up == {2}
    assert (run.version, run.published[2].checkpoint_uri) == (3, "file:///2")
    assert run.best is not None
    assert run.best.version == 1
    assert run.config == {"a": {"b": 1}}


def test_the_best_version_is_one_of_held_out_tasks() -> None:
    """Where there is any, whatever a later one scored on tasks that are trained on."""
    run = folded(
        observed.evaluated(1, 1.0, best=True),
        observed.evaluated(2, 0.5, best=True, held_out=True),
        observed.evaluated(3, 0.4, best=False, held_out=True),
        observed.evaluated(4, 1.0, best=True, held_out=False),
    )
    assert run.best is not None
    assert run.best.version == 2
    assert folded(observed.evaluated(1, 1.0, best=False)).best is None


def test_a_plan_is_a_sign_of_life_and_is_not_decoded() -> None:
    """A plan whose body is cut off moves the moment at which the run was seen; nothing else of it is read."""
    (plan,) = observed.records([observed.at(observed.planned(0), 500.0)])
    assert plan.value is not None
    cut = Record(plan.topic, 0, 9, plan.timestamp_ms, plan.key, plan.value[:12])
    run = runs_of([*observed.records([observed.trained(0, 0.1)]), cut])["run"]
    assert run.seen_us == 500 * observed.SECOND_US


def test_a_run_is_the_same_whoever_reads_it() -> None:
    """Without plans, with them, told on from earlier records, or by an index of groups: when it was seen, and so its state."""
    records = observed.records([observed.started(), observed.trained(0, 0.1), observed.at(observed.planned(1), 500.0)])
    runs = (
        runs_of(records),
        runs_of(records, lambda _: True),
        runs_of(records[1:], before=runs_of(records[:1])),
        RunIndex.of(records).runs,
    )
    for run in (each["run"] for each in runs):
        assert (run.seen_us, run.state(550 * observed.SECOND_US)) == (500 * observed.SECOND_US, "running")


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_latest_run_is_that_of_the_newest_record(order: tuple[int, int]) -> None:
    """Partitions are read one after the other, so the run that is read last may have ended long ago."""
    records = observed.records([observed.at(observed.trained(0, 0.1, "old"), 10), observed.trained(9, 0.1, "new")])
    assert RunIndex.of([records[number] for number in order]).latest == "new"


@pytest.mark.parametrize(
    ("gap_s", "quiet_s", "state"),
    [(1, 100, "running"), (1, 130, "stopped"), (60, 500, "running"), (60, 700, "stopped")],
)
def test_a_run_that_is_quiet_for_too_long_is_stopped(gap_s: float, quiet_s: float, state: str) -> None:
    """Two minutes, or ten times its usual gap between batches where that is longer."""
    run = folded(observed.started(), *(observed.at(observed.trained(n, 0.5), n * gap_s) for n in range(5)))
    assert run.state(int((4 * gap_s + quiet_s) * observed.SECOND_US)) == state


@pytest.mark.parametrize(("quiet_s", "state"), [(0, "starting"), (3500, "starting"), (3700, "stopped")])
def test_a_run_before_its_first_batch_is_starting(quiet_s: float, state: str) -> None:
    """It has no rhythm yet: a large model takes its time."""
    run = folded(observed.at(observed.started(), 10))
    assert run.batch_s is None
    assert run.state(run.seen_us + int(quiet_s * observed.SECOND_US)) == state


def test_a_rhythm_is_the_median_of_a_runs_batches() -> None:
    """The first one counts from the start, so that a run with one batch has one, too."""
    run = folded(observed.at(observed.started(), 10), observed.at(observed.trained(0, 0.5), 40))
    assert run.batch_s == 30
    run.take(observed.at(observed.trained(1, 0.5), 90))
    run.take(observed.at(observed.trained(2, 0.5), 190))
    assert run.batch_s == 50


def test_a_run_that_ended_is_ended_however_long_ago() -> None:
    """The log says so."""
    assert folded(observed.started(), observed.trained(0, 1.0), observed.ended(1)).state(10**18) == "ended"


def test_a_run_that_is_started_behind_its_end_runs_again() -> None:
    """Until it ends once more."""
    ended = folded(observed.started(), observed.trained(0, 1.0), observed.ended(1))
    ended.take(observed.started())
    assert (ended.state(ended.seen_us), ended.ended, ended.incarnations) == ("running", None, 2)
    ended.take(observed.ended(2))
    assert ended.state(10**18) == "ended"


def test_a_foreign_configuration_is_no_error() -> None:
    """A run of another program is listed all the same."""
    assert folded(observed.started(config="not json")).config == {}


def test_reading_many_batches_is_linear() -> None:
    """Four times as many batches take less than eight times as long."""

    def spent(number: int) -> float:
        records = observed.records([observed.trained(n, 0.5) for n in range(number)])
        began = time.process_time()
        run = runs_of(records)["run"]
        assert run.state(0) == "running"
        return time.process_time() - began

    spent(100)
    assert spent(8000) < 8 * spent(2000) + 0.05
