"""What Prometheus reads of a worker: its state, its version beside the newest, and what went wrong."""

from pathlib import Path

from claw_r1.rollout.metrics import RolloutMetrics
from claw_r1.rollout.reporter import Status
from tests.patience import until_async
from tests.rollout.scripted import Trainer, scripted_worker
from tests.rollout.scripted_vllm import ScriptedVllm


def value(metrics: RolloutMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"claw_rollout_{name}", labels)


async def test_versions_loads_and_lost_engines(tmp_path: Path) -> None:
    """It is ready from the first load on; an engine that hangs is counted, and its successor loads again."""
    engine, trainer = ScriptedVllm(), Trainer()
    trainer.publish(0)
    async with scripted_worker(engine, trainer, tmp_path, health_timeout_s=1.0) as worker:
        metrics = worker.supervisor.metrics
        await worker.until(lambda report: (report.state, report.version) == ("ready", 0))
        assert metrics.not_ready() is None
        assert (value(metrics, "version"), value(metrics, "published_version")) == (0, 0)
        assert value(metrics, "state", state="ready") == 1
        assert value(metrics, "loads_total", source="trainer") == 1
        load_s = value(metrics, "sync_seconds", phase="load")
        assert load_s is not None
        assert load_s < 10
        engine.hangs = True
        await until_async(lambda: value(metrics, "loads_total", source="this host's memory") == 1)
        assert value(metrics, "engine_losses_total") == 1


def test_a_worker_that_starts_says_why_it_takes_no_calls() -> None:
    """Without a version both numbers are -1; a state that is reported has its detail."""
    status = Status(state="starting", detail="vLLM ended with code 1")
    metrics = RolloutMetrics(lambda: status, lambda: None)
    assert metrics.not_ready() == "starting: vLLM ended with code 1"
    assert (value(metrics, "version"), value(metrics, "published_version")) == (-1, -1)
    assert RolloutMetrics(lambda: Status(state="behind"), lambda: None).not_ready() is None


def test_what_did_not_serve_is_counted_by_its_name_alone() -> None:
    """A reason holds whatever a trainer said; a label does not."""
    metrics = RolloutMetrics(lambda: Status(state="ready"), lambda: None)
    metrics.loaded("checkpoint", ("gloo: no group", "trainer: 503 every sender is busy"))
    assert value(metrics, "loads_total", source="checkpoint") == 1
    assert {
        each: value(metrics, "source_failures_total", source=each) for each in ("gloo", "trainer", "checkpoint")
    } == {
        "gloo": 1,
        "trainer": 1,
        "checkpoint": None,
    }
