"""The components of a stack on this machine as processes: their command lines, environments and readiness. Starts nothing."""

import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast, get_args

from claw.errors import CannotRun
from claw.home import claw_home
from schemas.runtime.component import Component
from schemas.runtime.files import write_atomically
from schemas.runtime.restarts import RestartBudget
from weights.device import Device, Wish, resolved, vllm_is_for_cpu

CURRENT = "current"
TRAINER_WARNINGS = "trainer-warnings.json"
PROBE_TIMEOUT_S = 1.0
DEMO_PARTITIONS = 8
WORKER_WAIT_S = 120  # one worker: while it restarts (20-60 s) calls wait instead of failing their episodes


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Where a stack keeps its files, and which log it uses."""

    run_dir: Path
    bootstrap: str
    prefix: str = "claw"
    partitions: int = DEMO_PARTITIONS
    device: Wish = "auto"
    """Of trainer and worker alike: what is trained on one is sent to the other (`weights/device.py`)."""
    env: Mapping[str, str] = field(default_factory=dict)

    def room(
        self,
        name: str,
        module: str,
        *arguments: str,
        ready: Callable[[], bool] | None = None,
        may_finish: bool = False,
        restarts_max: int = 3,
    ) -> Component:
        """`python -m module arguments…` as a component with a log file of its own."""
        return Component(
            name=name,
            argv=(sys.executable, "-m", module, *arguments),
            log_path=self.run_dir / "logs" / f"{name}.log",
            env=self.environment(),
            budget=RestartBudget(restarts_max=restarts_max),
            ready=ready,
            may_finish=may_finish,
        )

    def environment(self) -> dict[str, str]:
        """What every component gets: the log, the device, one thread per numeric library, no look-ups outside."""
        return {
            "KAFKA_BOOTSTRAP_SERVERS": self.bootstrap,
            "CLAW_LOG_PREFIX": self.prefix,
            "CLAW_LOG_PARTITIONS": str(self.partitions),
            "CLAW_TRAINER_DEVICE": self.device,
            "CLAW_ROLLOUT_DEVICE": self.device,
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "PYTHONUNBUFFERED": "1",
            "CLAW_TRAINER_WARNINGS_FILE": str(self.run_dir / TRAINER_WARNINGS),
            **self.env,
        }

    def gateway(self, port: int) -> Component:
        arguments = ("--port", str(port), "--worker-wait-s", str(WORKER_WAIT_S))
        return self.room("gateway", "gateway", *arguments, ready=answers(f"http://127.0.0.1:{port}/readyz"))

    def streams(self) -> Component:
        return self.room("streams", "streams")

    def rollout(self, model: Path, model_id: str, *arguments: str) -> Component:
        names = ("--model-id", model_id, "--served-name", model_id)
        vllm_log = self.run_dir / "logs" / "vllm.log"
        return self.room("rollout", "rollout", "--model", str(model), *names, "--log-file", str(vllm_log), *arguments)

    def trainer(self, config: Path, *arguments: str) -> Component:
        return self.room("trainer", "trainer", "--config", str(config), *arguments, may_finish=True)


def one_device(
    wishes: Mapping[str, str | None], *, serves: bool = True, resolve: Callable[[Wish], Device] = resolved
) -> Device:
    """The device of a stack, from all places that may name one. `serves`: whether a worker is part of it.

    Raises CannotRun when two of them contradict each other, and when vLLM's build could not follow a trainer on CUDA.
    """
    named = {place: wish for place, wish in wishes.items() if wish and wish != "auto"}
    if len(set(named.values())) > 1:
        contradiction = ", ".join(f"{place} says {wish}" for place, wish in named.items())
        raise CannotRun(f"trainer and worker have one device: {contradiction}")
    wish = next(iter(named.values()), "auto")
    if wish not in get_args(Wish):
        raise CannotRun(f"device {wish}: it is one of {', '.join(get_args(Wish))}")
    if serves and wish == "cuda" and vllm_is_for_cpu():
        raise CannotRun("device cuda: the vLLM that is installed is its CPU build; say cpu, or auto")
    return resolve(cast("Wish", wish))


def answers(url: str) -> Callable[[], bool]:
    """A readiness probe: whether a GET of the URL says 200."""

    def probe() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=PROBE_TIMEOUT_S) as reply:
                return bool(reply.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    return probe


def remember(run_dir: Path) -> None:
    """Makes this run the one that `claw status` shows and `claw down` names."""
    claw_home().mkdir(parents=True, exist_ok=True)
    write_atomically(claw_home() / CURRENT, str(run_dir))


def remembered() -> Path | None:
    """The run that was started last, whether it still runs or not."""
    path = claw_home() / CURRENT
    return Path(path.read_text()) if path.exists() else None
