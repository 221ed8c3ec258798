"""The costs of agents: `python -m bench.agents`, or `make bench-agents`. A table on stderr and `bench/out/agents.json`.

`runner_cpu_ratio`: CPU per model call of a runner's process (groups, calls, completions) ÷ that of OpenAI's SDK in a bare loop, both
through one gateway to a scripted engine. `gateway_kept`: episodes/s of verbs through the gateway ÷ straight to vLLM, 16 at once; the
gateway asks the engine for token ids and log-probabilities besides, an agent that goes straight there does not. Each side of a
ratio in one run, repeats interleaved, medians. The broker is real, acks=all. vLLM serves 57 M parameters in float32, replies of 32 tokens.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.gateway_ground import broker, report_worker
from bench.measured_process import running
from bench.report import Figures, Measure, Targets, run
from claw_r1.claw.demo.models.tiny_model import Recipe, build
from claw_r1.claw.demo.verbs.demonstrations import demonstration
from claw_r1.claw.local.ports import free_ports
from claw_r1.eventlog.kafka.admin import create_topics
from claw_r1.eventlog.settings import LogSettings

TARGETS: Targets = {"runner_cpu_ratio": ("<=", 0.5), "gateway_kept": (">=", 0.95)}
AT_ONCE = 16
LARGE = Recipe(hidden=512, layers=18, heads=8, kv_heads=4, head_dim=64, steps=1)
"""57 M parameters; what it says does not matter."""
VLLM_START_S = 240.0


def main() -> int:
    """0: measured, whatever the figures say."""
    parser = argparse.ArgumentParser(prog="bench.agents", description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=7, help="interleaved repeats of each side (7)")
    parser.add_argument(
        "--episodes", type=int, default=96, help="episodes per repeat of the gateway, a quarter of the runner's (96)"
    )
    parser.add_argument("--part", choices=("runner", "gateway"), help="this figure alone")
    parser.add_argument("--json", action="store_true", help="the JSON on stdout instead of the table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, broker(Path(folder)) as bootstrap:
        measures: dict[str, Measure] = {
            "runner": lambda: runner_cpu(bootstrap, Path(folder), options.repeats, 4 * options.episodes),
            "gateway": lambda: gateway_kept(bootstrap, Path(folder), options.repeats, options.episodes),
        }
        parts = [options.part] if options.part else measures
        return run("agents", {part: measures[part] for part in parts}, TARGETS, as_json=options.json)


def runner_cpu(bootstrap: str, folder: Path, repeats: int, episodes: int) -> Figures:
    """CPU-ms per call of both sides, at a scripted engine."""
    log = fresh_log(bootstrap)
    engine_port, port = free_ports(2)
    report_worker(log, f"http://127.0.0.1:{engine_port}")
    with (
        running("bench.scripted_upstream", str(engine_port), ready="listening", log=folder / "engine"),
        gateway(log, folder, port) as url,
    ):
        rounds = [{how: play(how, url, episodes)["cpu_ms"] for how in ("runner", "sdk")} for _ in range(repeats)]
    ratios = [each["runner"] / each["sdk"] for each in rounds]
    return {
        "runner_cpu_ratio": statistics.median(ratios),
        "runner_cpu_ms": statistics.median(each["runner"] for each in rounds),
        "sdk_cpu_ms": statistics.median(each["sdk"] for each in rounds),
        "runner_cpu_ratios": [round(ratio, 3) for ratio in ratios],
    }


def gateway_kept(bootstrap: str, folder: Path, repeats: int, episodes: int) -> Figures:
    """Episodes/s of both sides, at one vLLM with the demo's model. The order of the two changes with each repeat."""
    log = fresh_log(bootstrap)
    engine_port, port = free_ports(2)
    model = folder / "model"
    model.mkdir()
    build(model, 0, LARGE, demonstration)
    names = ("--model", str(model), "--model-id", "bench", "--served-name", "bench", "--port", str(engine_port))
    environment = {**log_environment(log), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    engine = f"http://127.0.0.1:{engine_port}"
    with (
        running("claw_r1.rollout", *names, ready="vllm_started", log=folder / "rollout", **environment),
        gateway(log, folder, port) as url,
    ):
        wait_healthy(f"{engine}/health", folder / "rollout")
        wait_healthy(f"{url}/v1/models", folder / "rollout")
        sides = {"through": {"url": url}, "straight": {"url": engine, "direct": True}}
        rounds = []
        for number in range(repeats):
            order = list(sides.items())[:: 1 if number % 2 else -1]
            rounds.append({side: play("verbs", episodes=episodes, **where)["episodes_per_s"] for side, where in order})
    ratios = [each["through"] / each["straight"] for each in rounds]
    return {
        "gateway_kept": statistics.median(ratios),
        "gateway_episodes_per_s": statistics.median(each["through"] for each in rounds),
        "direct_episodes_per_s": statistics.median(each["straight"] for each in rounds),
        "gateway_kept_ratios": [round(ratio, 3) for ratio in ratios],
    }


def fresh_log(bootstrap: str) -> LogSettings:
    """Topics of this part's own."""
    log = LogSettings(bootstrap_servers=bootstrap, prefix=f"bench{uuid.uuid4().hex[:8]}", partitions=8)
    create_topics(log)
    return log


def log_environment(log: LogSettings) -> dict[str, str]:
    """The log, for a process."""
    return {
        "KAFKA_BOOTSTRAP_SERVERS": log.bootstrap_servers,
        "CLAW_LOG_PREFIX": log.prefix,
        "CLAW_LOG_PARTITIONS": str(log.partitions),
    }


@contextlib.contextmanager
def gateway(log: LogSettings, folder: Path, port: int) -> Iterator[str]:
    """A gateway, by its URL."""
    where = {
        **log_environment(log),
        "CLAW_GATEWAY_WORKER_TTL_S": "86400",
        "CLAW_GATEWAY_SPOOL_DIR": str(folder / "spool"),
    }
    with running(
        "claw_r1.gateway", "--port", str(port), ready="gateway_listening", log=folder / f"gateway-{port}", **where
    ):
        yield f"http://127.0.0.1:{port}"


def wait_healthy(url: str, log: Path) -> None:
    """Until it answers 200. Raises RuntimeError after four minutes."""
    deadline_s = time.monotonic() + VLLM_START_S
    while time.monotonic() < deadline_s:
        with contextlib.suppress(urllib.error.URLError, OSError), urllib.request.urlopen(url, timeout=2) as reply:
            if reply.status == 200:
                return
        time.sleep(0.5)
    raise RuntimeError(f"{url} does not answer: {log.read_text()[-2000:]}")


def play(how: str, url: str, episodes: int, **more: Any) -> Figures:
    """One load, in a process of its own."""
    load = {"how": how, "url": url, "episodes": episodes, "at_once": AT_ONCE, **more}
    command = [sys.executable, "-m", "bench.agent_load", json.dumps(load)]
    process = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=dict(os.environ))
    result: Figures = json.loads(process.stdout)
    return result


if __name__ == "__main__":
    sys.exit(main())
