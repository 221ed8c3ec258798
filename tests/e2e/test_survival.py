"""The whole loop on this machine, every component killed once; in `make soak` with two workers, and one added while it learns."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests import children
from tests.caches import share_caches
from tests.infra.alerts import ALERTS, found_promtool, promtool
from tests.infra.recording import Recording
from tests.infra.test_boards import EXPRESSIONS
from tests.otlp import Receiver
from tests.patience import PATIENCE_S, until
from tests.soak import SOAK, in_soak, only_in_soak

OF_TWO_WORKERS = ("gateway", "streams", "trainer", "vllm-2", "rollout-1")
ONE_OF_EACH = ("gateway", "streams", "trainer", "rollout")
"""A worker's engine ends with it; that one that ends alone is replaced is the law of tests/rollout/test_supervisor.py."""
ROOMS = ("gateway", "streams", "trainer", "rollout", "rewards", "dashboard")
ADDED = "from-elsewhere"
EVALUATED = {"CLAW_AGENTFLOW_EVAL_EVERY": "2", "CLAW_AGENTFLOW_EVAL_COUNT": "8"}
GO_ON_S = 300.0
BATCH_LINE = re.compile(r"batch\s+(\d+)\s")

pytestmark = [pytest.mark.kafka, pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(1500)]


class RunningDemo:
    """A demo in a process of its own, with its own home; reads its progress as a person would."""

    def __init__(
        self, home: Path, workers: int, batches: int, more: Mapping[str, str], flags: Sequence[str] = ()
    ) -> None:
        self.env = {**os.environ, **more, "CLAW_HOME": str(home)}
        self.env.pop("KAFKA_BOOTSTRAP_SERVERS", None)
        command = [
            sys.executable,
            "-m",
            "claw_r1.claw.cli",
            "demo",
            "--json",
            "--batches-max",
            str(batches),
            "--batches-min",
            str(batches),
            "--workers",
            str(workers),
            *flags,
        ]
        self.process = children.start(command, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.batch = 0
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.said.append(line.rstrip())
            if found := BATCH_LINE.search(line):
                self.batch = int(found[1])

    def pids(self) -> dict[str, int]:
        components = json.loads(self.claw("status", "--json"))["components"]
        return {entry["component"]: entry["pid"] for entry in components if entry["pid"]}

    def claw(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "claw_r1.claw.cli", *arguments],
            env=self.env,
            capture_output=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout.decode(errors="replace")

    def add_worker(self, home: Path) -> "subprocess.Popen[str]":
        """As somebody on another machine would, of whom the stack knows nothing."""
        (run,) = (home / "runs").iterdir()
        log, trainer = json.loads((run / "log.json").read_text()), yaml.safe_load((run / "trainer.yaml").read_text())
        where = {"KAFKA_BOOTSTRAP_SERVERS": log["bootstrap_servers"], "CLAW_LOG_PREFIX": log["prefix"]}
        names = ("--model-id", trainer["model_id"], "--served-name", trainer["model_id"], "--run-id", run.name)
        flags = ("--model", trainer["model_dir"], *names, "--worker-id", ADDED, "--log-file", str(home / "added.log"))
        command = [sys.executable, "-m", "claw_r1.rollout", *flags]
        with (home / "added-rollout.log").open("wb") as output:
            environment = {**self.env, **where, "CLAW_LOG_PARTITIONS": "8", "OMP_NUM_THREADS": "1"}
            return children.start(command, env=environment, stdout=output, stderr=output, text=True)

    def wait_for_batch(self, batch: int) -> None:
        deadline = time.monotonic() + GO_ON_S
        while self.batch < batch:
            assert self.process.poll() is None, "\n".join(self.said[-20:])
            assert time.monotonic() < deadline, f"no batch {batch} within {GO_ON_S:.0f} s\n" + "\n".join(
                self.said[-20:]
            )
            time.sleep(0.1)

    def wait_for_engine(self, home: Path) -> None:
        deadline = time.monotonic() + GO_ON_S
        while not any("rollout.process.vllm_server" in command for command in processes_of(home)):
            assert self.process.poll() is None, "\n".join(self.said[-20:])
            assert time.monotonic() < deadline, f"no engine within {GO_ON_S:.0f} s"
            time.sleep(0.1)

    def result(self) -> dict[str, Any]:
        assert self.process.stdout
        lines = self.process.stdout.read().splitlines()
        self.process.wait(60)
        assert len(lines) == 1, "\n".join(self.said[-20:])
        parsed: dict[str, Any] = json.loads(lines[0])
        return parsed


def processes_of(home: Path) -> list[str]:
    """Command lines of processes that carry this home in their environment."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"CLAW_HOME={home}".encode() in environ.read_bytes():
                found.append(environ.with_name("cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


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


@pytest.mark.parametrize(("workers", "batches", "components"), [(1, 5, ONE_OF_EACH), in_soak(2, 12, OF_TWO_WORKERS)])
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
        assert recording.alerts() == set(), "each kill was mended by itself, before anybody is to be waked"
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


def the_log_holds_what_was_promised(demo: RunningDemo, home: Path) -> None:
    """By an oracle that shares no code with the folds: the pool is that of the facts, no step was trained twice, and every
    call that an agent had a reply of is captured."""
    (run,) = (home / "runs").iterdir()
    replied = run / "replied.txt"
    report = json.loads(demo.claw("verify", "--replied", str(replied), "--run", run.name, "--json"))
    assert report["counts"]["replied"] == len(replied.read_text().splitlines()) > 0


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
