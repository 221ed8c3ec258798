"""What Prometheus reads of a trainer: phases, batches, the run's own period, and why a batch is not there yet."""

import dataclasses
import threading

import pytest
from msgspec.structs import replace

from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import BatchTrained
from claw_r1.trainer.metrics import TrainerMetrics
from claw_r1.trainer.run import TrainingRun
from tests.patience import until
from tests.trainer.incarnation import settings
from tests.trainer.pooled import group
from tests.trainer.runs_in_memory import two_batches, world_of


def value(metrics, name, **labels):
    """One sample, None where there is none."""
    return metrics.registry.get_sample_value(name, labels)


def trained(at_s, sequence=0, **metrics):
    return BatchTrained(
        envelope=replace(envelope("trainer"), occurred_at_us=int(at_s * 1e6)),
        run_id="r",
        sequence=sequence,
        version=sequence + 1,
        metrics=metrics,
    )


def test_a_run_counts_its_batches_and_ends(tmp_path, model_dir):
    """Of each process what it trained itself; what the run trained before says only when that was, and how often."""
    chosen = settings(tmp_path, model_dir, batches_max=1)
    log, collaborators = world_of(chosen, two_batches())
    metrics = collaborators.metrics
    assert metrics.not_ready() == "loading"
    assert TrainingRun(chosen, collaborators).run() == "finished"
    assert value(metrics, "claw_trainer_batches_total") == 1
    assert value(metrics, "claw_trainer_version") == 1
    assert value(metrics, "claw_trainer_staleness_bound") == chosen.spec.staleness_max
    assert value(metrics, "claw_trainer_batch_seconds_total", spent="train") > 0
    assert value(metrics, "claw_trainer_last_batch", metric="reward") == 0.5
    assert value(metrics, "claw_trainer_phase", phase="ended") == 1
    assert metrics.not_ready() == "ended"
    first_at = value(metrics, "claw_trainer_last_batch_timestamp_seconds")

    chosen = settings(tmp_path, model_dir, batches_max=2)
    _, resumed = world_of(chosen, two_batches(), log=log)
    assert TrainingRun(chosen, resumed).run() == "finished"
    assert value(resumed.metrics, "claw_trainer_batches_total") == 1
    assert value(resumed.metrics, "claw_trainer_version") == 2
    period = value(resumed.metrics, "claw_trainer_batch_period_seconds")
    assert period == pytest.approx(
        value(resumed.metrics, "claw_trainer_last_batch_timestamp_seconds") - first_at, abs=1e-3
    )


def test_the_period_is_the_median_of_the_newest_batches():
    """One long night does not make a run slow; without two batches there is none."""
    metrics = TrainerMetrics()
    metrics.trained(trained(0))
    assert value(metrics, "claw_trainer_batch_period_seconds") == 0
    for number, at_s in enumerate((10, 20, 30_000, 30_010), start=1):
        metrics.trained(trained(at_s, number))
    assert value(metrics, "claw_trainer_batch_period_seconds") == 10


def test_a_skipped_step_is_counted_and_what_is_not_shown_is_no_label():
    """Names of metrics that an algorithm adds never become labels."""
    metrics = TrainerMetrics()
    metrics.trained(trained(1, step_skipped=1.0, reward=0.25, lag_3_kl_k3=9.0))
    assert value(metrics, "claw_trainer_skipped_steps_total") == 1
    assert value(metrics, "claw_trainer_last_batch", metric="reward") == 0.25
    assert value(metrics, "claw_trainer_last_batch", metric="lag_3_kl_k3") is None


def test_what_a_batch_waits_for_is_there_while_it_waits(tmp_path, model_dir):
    """One of two groups is there: a run in its loop says so, and in which phase it is; a stop ends it."""
    stop = threading.Event()
    chosen = settings(tmp_path, model_dir, batches_max=1, wait_log_interval_s=0.01, poll_interval_s=0.01)
    _, collaborators = world_of(chosen, group("g0", [0.0, 1.0, 1.0, 0.0]), stop=stop)
    metrics, endings = collaborators.metrics, []
    thread = threading.Thread(target=lambda: endings.append(TrainingRun(chosen, collaborators).run()))
    thread.start()
    try:
        until(lambda: value(metrics, "claw_trainer_groups_ready") == 1)
        assert value(metrics, "claw_trainer_groups_needed") == chosen.spec.groups_per_batch == 2
        assert value(metrics, "claw_trainer_phase", phase="waiting_for_groups") == 1
        assert metrics.not_ready() is None
    finally:
        stop.set()
        thread.join()
    assert endings == ["stopped"]
    assert value(metrics, "claw_trainer_phase", phase="exporting") == 1, "stopped is not ended: it goes on"


def test_reasons_of_what_is_left_out_go_with_the_batch():
    """Each reason has its number; one that holds no more is gone, and a batch that was trained leaves none."""
    metrics = TrainerMetrics()
    metrics.short_of_groups(0, {"stale": 3, "unsampled": 1})
    metrics.short_of_groups(1, {"stale": 2})
    assert value(metrics, "claw_trainer_groups_left_out", reason="stale") == 2
    assert value(metrics, "claw_trainer_groups_left_out", reason="unsampled") is None
    metrics.trained(trained(1))
    assert value(metrics, "claw_trainer_groups_left_out", reason="stale") is None
    assert value(metrics, "claw_trainer_groups_ready") == 0


def test_what_a_batch_does_not_tell_is_not_shown_as_that_of_another():
    """A gap that is no number is shown as such, and one that was not measured not at all."""
    metrics = TrainerMetrics()
    metrics.trained(trained(1, max_logprob_gap=4.0))
    metrics.trained(trained(2, nonfinite_max_logprob_gap=1.0))
    assert value(metrics, "claw_trainer_last_batch", metric="max_logprob_gap") is None
    assert value(metrics, "claw_trainer_last_batch", metric="nonfinite_max_logprob_gap") == 1
    metrics.trained(trained(3))
    assert value(metrics, "claw_trainer_last_batch", metric="nonfinite_max_logprob_gap") is None


def test_what_clients_write_is_no_label_of_a_reason(tmp_path, model_dir):
    """Groups of the run's own are counted, waiting or skipped for good, by the words of the code; those of others are not."""
    chosen = settings(tmp_path, model_dir, batches_max=1)
    pool = [
        *group("waits", [0.0], expected_size=7),
        *group("skipped", [0.0, 1.0], version=9),
        *group("foreign", [0.0, 1.0], channel="mine"),
    ]
    _, dependencies = world_of(chosen, pool)
    dependencies = dataclasses.replace(dependencies, pool_grows=False)
    assert TrainingRun(chosen, dependencies).run() == "finished"
    metrics, name = dependencies.metrics, "claw_trainer_groups_"
    assert value(metrics, f"{name}left_out", reason="not_ready") == 1
    assert value(metrics, f"{name}skipped_total", reason="sampled_by_unknown_version_N") == 1
    (left_out,) = (each for each in metrics.registry.collect() if each.name == f"{name}left_out")
    assert len(left_out.samples) == 1
