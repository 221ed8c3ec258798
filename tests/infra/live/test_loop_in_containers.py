"""`make images-test TARGETS="trainer rollout"`: the demo's loop in containers of our images, Kafka among them; only agents are outside."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import pytest
import yaml

from claw_r1.claw.demo.components import MODEL_ID, DemoComponents
from claw_r1.claw.demo.settings import DemoSettings
from claw_r1.claw.demo.verbs.tiny_model import ensure
from claw_r1.claw.local.ports import free_ports
from claw_r1.claw.local.stack import Stack
from claw_r1.eventlog.settings import LogSettings
from claw_r1.runtime.processes.child import module_argv
from claw_r1.schemas.api_keys import new_key
from claw_r1.weights.sources import SECRET_VARIABLE
from tests import children
from tests.caches import CACHE
from tests.infra.live.containers import TARGETS, Engine, Room

pytestmark = [
    pytest.mark.process,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(
        not {"trainer", "rollout"} <= {*TARGETS}, reason='`make images-test TARGETS="trainer rollout"` asks for it'
    ),
]
BATCHES = 16
FEW = 4
"""So many of the first and of the last are compared."""
MODEL_PLACE, CONFIG_PLACE = "/models/policy", "/etc/claw/trainer.yaml"


@dataclass
class Loop:
    """The rooms of a run, ready, and what it is made of."""

    components: DemoComponents
    gateway: Room
    streams: Room
    rollout: Room
    trainer: Room

    @property
    def rewards(self) -> list[float]:
        """The mean reward of each batch, as the trainer's volume has it."""
        metrics = self.trainer.home / "runs" / "metrics.jsonl"
        return [json.loads(line)["reward"] for line in metrics.read_text().splitlines()] if metrics.exists() else []


@pytest.fixture
def key() -> tuple[str, str]:
    """The agents' key, and what a gateway knows of it."""
    return new_key("agent")


@pytest.fixture
def loop(images: Engine, log_settings: LogSettings, tmp_path: Path, key: tuple[str, str]) -> Iterator[Loop]:
    """Gateway, streams, a worker and a trainer, each in a container that has no other's files."""
    gateway_port, engine_port, offer_port = free_ports(3)
    stack = Stack(
        run_dir=tmp_path / "runs" / "in-containers",
        bootstrap=log_settings.bootstrap_servers,
        prefix=log_settings.prefix,
        partitions=log_settings.partitions,
    )
    (stack.run_dir / "logs").mkdir(parents=True)
    components = DemoComponents(DemoSettings(batches_max=1000, batches_min=1000), stack, gateway_port)
    model = ensure(CACHE / "models", 0)
    config = tmp_path / "trainer.yaml"
    ours = {"model_dir": MODEL_PLACE, "out_dir": "/var/lib/claw/runs", "stop_timeout_s": 20}
    config.write_text(yaml.safe_dump({**components.trainer_settings(model), **ours}))
    config.chmod(0o644)

    def room(target: str, **env: str) -> Room:
        return Room(images, target, log_settings, tmp_path, {SECRET_VARIABLE: "a secret of both", **env})

    gateway = room(
        "gateway", CLAW_GATEWAY_PORT=str(gateway_port), CLAW_GATEWAY_API_KEYS=key[1], CLAW_GATEWAY_WORKER_WAIT_S="120"
    )
    worker = {"MODEL": MODEL_PLACE, "MODEL_ID": MODEL_ID, "SERVED_NAME": MODEL_ID, "RUN_ID": components.run_id}
    where = {"PORT": str(engine_port), "ADVERTISE_HOST": "127.0.0.1"}
    rollout = room("rollout", **{f"CLAW_ROLLOUT_{name}": value for name, value in {**worker, **where}.items()})
    offer = {"OFFER_PORT": str(offer_port), "OFFER_ADVERTISE": "127.0.0.1"}
    trainer = room("trainer", **{f"CLAW_TRAINER_{name}": value for name, value in offer.items()})
    made = Loop(
        components,
        gateway,
        room("streams"),
        rollout.given(model, MODEL_PLACE),
        trainer.given(model, MODEL_PLACE).given(config, CONFIG_PLACE).told("--config", CONFIG_PLACE),
    )
    with ExitStack() as running:
        for each in (made.gateway, made.streams, made.rollout, made.trainer):
            running.enter_context(each).await_ready()
            print(f"claw-{each.target}: ready after {each.ready_s:.1f} s")
        yield made


def test_the_loop_learns(loop: Loop, key: tuple[str, str], tmp_path: Path) -> None:
    """Batches are trained and their reward grows. SIGTERM ends each room in its time, the worker while agents call it, and
    nothing that was replied is lost, nor anything trained twice."""
    component = loop.components.agents()
    env = {**os.environ, **component.env, "CLAW_HOME": str(tmp_path)}
    with (tmp_path / "agents.log").open("wb") as said:
        agents = children.start((*component.argv, "--api-key", key[0]), env=env, stdout=said, stderr=said)
    try:
        loop.trainer.await_that(lambda: len(loop.rewards) >= BATCHES, f"{BATCHES} batches")
        rewards = loop.rewards
        print(f"mean reward of {len(rewards)} batches: {' '.join(f'{each:.2f}' for each in rewards)}")
        assert fmean(rewards[-FEW:]) > fmean(rewards[:FEW])
        loop.rollout.stop(75)
    finally:
        children.end(agents)
    for room in (loop.trainer, loop.gateway):
        room.stop()
    loop.streams.await_that(lambda: promises_hold(loop, env), "every promise holds")
    loop.streams.stop()


def promises_hold(loop: Loop, env: Mapping[str, str]) -> bool:
    """Nothing that was replied is lost, nothing is trained twice, and the pool is that of its facts."""
    replied = loop.components.stack.run_dir / "replied.txt"
    argv = module_argv("claw_r1.claw.cli", "verify", "--replied", str(replied), "--json")
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, check=False)
    print(done.stdout[-600:], done.stderr[-600:])
    counts = json.loads(done.stdout)["counts"] if done.returncode == 0 else {}
    return bool(counts.get("replied")) and counts["batches_trained"] >= BATCHES
