"""The whole loop on this machine, every component killed once; in `make soak` with two workers, and one added while it learns."""

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import psutil
import pytest

from tests import children
from tests.caches import share_caches
from tests.e2e.running_demo import ADDED, RunningDemo, processes_of, the_log_holds_what_was_promised
from tests.infra.alerts import ALERTS, found_promtool, promtool
from tests.infra.recording import Recording
from tests.infra.test_boards import EXPRESSIONS
from tests.otlp_receiver import Receiver
from tests.patience import PATIENCE_S, until
from tests.soak import SOAK, in_soak, only_in_soak

OF_TWO_WORKERS = ("gateway", "streams", "trainer", "vllm-2", "rollout-1")
ONE_OF_EACH = ("gateway", "streams", "trainer", "rollout")
"""A worker's engine ends with it; that one that ends alone is replaced is the law of tests/rollout/test_supervisor.py."""
ROOMS = ("gateway", "streams", "trainer", "rollout", "rewards", "dashboard")
EVALUATED = {"CLAW_AGENTFLOW_EVAL_EVERY": "2", "CLAW_AGENTFLOW_EVAL_COUNT": "8"}

pytestmark = [pytest.mark.kafka, pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture
def otlp() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def flags() -> Sequence[str]:
    return ()


@pytest.fixture
def variables() -> Mapping[str, str]:
    return {}


@pytest.fixture
def demo(
    tmp_path: Path,
    workers: int,
    batches: int,
    otlp: Receiver,
    flags: Sequence[str],
    variables: Mapping[str, str],
) -> Iterator[RunningDemo]:
    """A demo with so many workers, that ends after so many batches, and tells a receiver what it does."""
    share_caches(tmp_path)
    told = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": otlp.url,
        "OTEL_BSP_SCHEDULE_DELAY": "100",  # a kill loses what waits to be sent
        **variables,
    }
    running = RunningDemo(tmp_path, workers, batches, told, flags)
    yield running
    children.end(running.process, 30)  # what it started ends with it, also when it is killed


@contextmanager
def added_worker(demo: RunningDemo, home: Path) -> Iterator[None]:
    """A worker that comes after the first batch and stays as long as the block."""
    demo.wait_for_batch(1)
    added = demo.add_worker(home)
    try:
        yield
    finally:
        children.end(added, 30)


@pytest.mark.parametrize(("workers", "batches", "components"), [(1, 7, ONE_OF_EACH), in_soak(2, 12, OF_TWO_WORKERS)])
def test_the_loop_goes_on_when_any_component_is_killed(
    demo: RunningDemo, otlp: Receiver, workers: int, batches: int, components: tuple[str, ...], tmp_path: Path
) -> None:
    """After kill -9 of each component in turn the run ends by itself, nothing lost, nothing trained twice, nothing left.

    Each worker took calls, and so did one that came in the middle (in `make soak`).
    """
    with added_worker(demo, tmp_path) if SOAK else nullcontext(), Recording(tmp_path) as recording:
        demo.wait_for_batch(1)
        pids = demo.pids()  # once: each is killed once, and while a slow machine asks, the run goes on to its end
        for number, component in enumerate(components):
            demo.wait_for_batch(1 + number)
            os.kill(pids[component], signal.SIGKILL)
        result = demo.result()
    took_calls = set(result["calls_by_worker"])
    assert (ADDED in took_calls) == bool(SOAK)
    assert len(took_calls - {ADDED}) == workers
    assert result["batches"] == batches
    assert result["groups_trained"] == 8 * batches
    surplus = result["calls_captured"] - result["calls_replied"]
    assert 0 <= surplus <= result["calls_unanswered"]  # the kills, and the stop of the agents, come where they come
    assert result["max_logprob_gap"] <= 1e-4
    assert result["dead_letters"] == 0
    assert processes_of(tmp_path) == []
    asked = [*(rule["expr"] for rule in ALERTS), *EXPRESSIONS]
    assert recording.missing(asked, ("gateway", "streams", "trainer", "rollout")) == set()
    if found_promtool():
        # Both say that training stands while what was killed starts, which on a slow machine takes more than their minute: agents
        # sample on meanwhile, so that more groups grow stale than seven batches train.
        fired = recording.alerts() - {"ClawGroupsTooStale", "ClawNoBatch"}
        assert fired == set(), "each kill was mended by itself, before anybody is to be waked"
    the_way_of_a_call_is_told(otlp)
    the_log_holds_what_was_promised(demo, tmp_path)
    the_kept_broker_can_be_read(demo)
    assert processes_of(tmp_path) == []


@only_in_soak
@pytest.mark.parametrize(
    ("workers", "batches", "flags", "variables"),
    [(1, 5, (), {}), (2, 5, ("--reward", "rule", "--dashboard"), {}), (1, 6, (), EVALUATED)],
)
def test_health_raises_no_alert_however_slow_it_is(
    demo: RunningDemo, otlp: Receiver, tmp_path: Path, flags: Sequence[str], variables: Mapping[str, str]
) -> None:
    """A whole demo, and the same in which all took fifteen times longer: a quarter of an hour, as Prometheus sees it.

    With a scorer and a dashboard whatever rules and boards ask of any room is there, and a verdict is linked to its calls;
    with evaluations the trainer waits for each, and nobody is waked.
    """
    promtool()
    with Recording(tmp_path) as recording:
        demo.result()
    assert recording.alerts() == recording.alerts(slower=15) == set()
    if variables:
        (run,) = (tmp_path / "runs").iterdir()
        assert json.loads(demo.claw("runs", "show", run.name, "--json"))["evaluations"]
    if flags:
        asked = [*(rule["expr"] for rule in ALERTS), *EXPRESSIONS]
        assert recording.missing(asked, ROOMS) == set()
        calls = {span.context for span in otlp.named("claw-gateway")}
        assert calls & {link for span in otlp.named("claw-rewards") for link in span.links}


STOPPED = {
    "gateway": {"ClawProcessDown", "ClawNoBatch"},
    "streams": {"ClawProcessDown", "ClawNoBatch"},
    "trainer": {"ClawProcessDown"},
    "rollout": {"ClawProcessDown", "ClawNoWorker", "ClawNoBatch"},
}
"""The alerts of a component that stands still for what Prometheus takes for ten minutes."""


@only_in_soak
@pytest.mark.parametrize(("workers", "batches", "component"), [(1, 40, component) for component in STOPPED])
def test_what_stands_still_raises_its_alerts(demo: RunningDemo, tmp_path: Path, component: str) -> None:
    """A process and its children are stopped in their tracks, and go on later: who waits for them says so, and nobody else."""
    promtool()
    with Recording(tmp_path) as recording:
        demo.wait_for_batch(3)
        stopped = with_children(demo, component)
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in stopped:
                os.kill(pid, number)
            time.sleep(40 if number == signal.SIGSTOP else 0)
        result = demo.result()
    assert result["batches"] == 40
    assert recording.alerts(slower=15) == STOPPED[component]


def with_children(demo: RunningDemo, component: str) -> list[int]:
    """The process of a component, with all that it started."""
    process = psutil.Process(demo.pids()[component])
    return [process.pid, *(child.pid for child in process.children(recursive=True))]


def the_way_of_a_call_is_told(otlp: Receiver) -> None:
    """From the gateway to the engine below it, the fold and the batch that link to it; of calls that no kill cut short."""
    calls = {span.context: span for span in otlp.named("claw-gateway")}
    engines = {(span.context[0], span.parent) for span in otlp.named("claw-engine")}
    folded, trained = (
        {link for span in otlp.named(f"claw-{room}") for link in span.links} for room in ("streams", "trainer")
    )
    whole = calls.keys() & engines & folded & trained
    assert whole, (len(calls), len(engines), len(folded), len(trained))


def the_kept_broker_can_be_read(demo: RunningDemo) -> None:
    """Read commands start the broker for their duration; Kafka's own tools work on it."""
    described = json.loads(demo.claw("topics", "describe", "--json"))
    assert {"claw.calls", "claw.datapool.groups"} <= {topic["name"] for topic in described}
    records = [
        json.loads(line)
        for line in demo.claw("replay", "--topic", "datapool.trajectories", "--limit", "3", "--json").splitlines()
    ]
    assert len(records) == 3
    trajectory = records[0]["event"]
    inspected = json.loads(
        demo.claw("inspect", trajectory["trajectory_id"], "--group", trajectory["group_id"], "--json")
    )
    assert inspected["trajectory"]["trajectory_id"] == trajectory["trajectory_id"]
    groups = ("broker", "tool", "consumer-groups", "--list")
    until(
        lambda: any("claw" in group for group in demo.claw(*groups).split()),
        "Kafka lists groups once it has loaded them",
    )
    console = (
        "console-consumer",
        "--topic",
        "claw.weights",
        "--from-beginning",
        "--max-messages",
        "1",
        "--timeout-ms",
        "20000",
    )
    assert "verbs-tiny" in demo.claw("broker", "tool", *console)


@pytest.mark.soak
@pytest.mark.parametrize(("workers", "batches"), [(1, 7)])
def test_ctrl_c_stops_everything(demo: RunningDemo, tmp_path: Path) -> None:
    """A demo that is interrupted while its engine starts (in `make soak`: while it trains) exits with 130 and leaves no process."""
    if SOAK:
        demo.wait_for_batch(1)
    else:
        demo.wait_for_engine(tmp_path)
    demo.process.send_signal(signal.SIGINT)
    until(
        lambda: demo.process.poll() is not None, "the end of the demo", patience_s=2 * PATIENCE_S
    )  # of eight processes
    assert demo.process.returncode == 130, "\n".join(demo.said[-20:])
    assert processes_of(tmp_path) == []
