"""The components of a stack on this machine as processes: their command lines, environments and readiness.
Starts nothing."""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from claw_r1.claw.home import claw_home
from claw_r1.claw.local.ports import BROKER_NAMES, free_ports, is_free
from claw_r1.claw.local.status_file import TARGETS_FILE
from claw_r1.claw.tls.tls_dir import door_url
from claw_r1.claw.workers.places import WorkerPlace
from claw_r1.eventlog.settings import LogSettings
from claw_r1.runtime.files import write_atomically
from claw_r1.runtime.processes.child import module_argv
from claw_r1.runtime.processes.component import Component
from claw_r1.runtime.processes.restarts import RestartBudget
from claw_r1.schemas.json_values import JsonDict
from claw_r1.trainer.errors import RUN_WAS_OVER

CURRENT = "current"
LOG_FILE = "log.json"
PROMETHEUS_FILE = "prometheus.yaml"
TRAINER_WARNINGS = "trainer-warnings.json"
PROBE_TIMEOUT_S = 1.0
CANNOT_START = 2
DEMO_PARTITIONS = 8
DASHBOARD_PORT = 8200
ALERTS = Path(__file__).resolve().parents[2] / "infra" / "alerts" / "claw.yaml"
WATCHED = ("gateway", "streams", "trainer", "rollout", "rewards", "dashboard")
"""Rooms whose processes serve metrics."""
WORKER_BUDGET = RestartBudget(window_s=600)  # a worker takes up to a minute to start: in 120 s it could die for ever
WORKER_WAIT_S = 120  # while the only worker restarts (20-60 s) calls wait instead of failing their episodes


@dataclass(frozen=True, kw_only=True)
class Stack:
    """The folder of a stack's files, and the log that it uses."""

    run_dir: Path
    bootstrap: str
    prefix: str = "claw"
    partitions: int = DEMO_PARTITIONS
    device: str = "auto"
    """The device of trainer and workers; auto: as the settings of each have it, for weights go from any device to
    any."""
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
        """`python -m module arguments…` as a component with a log file of its own, and metrics where it has some."""
        watched = module.removeprefix("claw_r1.").removeprefix("consumers.")
        port = free_ports(1)[0] if watched in WATCHED else None
        return Component(
            name=name,
            argv=module_argv(module, *arguments),
            log_path=self.run_dir / "logs" / f"{name}.log",
            env={**self.environment(), **({f"CLAW_{watched.upper()}_METRICS_PORT": str(port)} if port else {})},
            metrics_port=port,
            budget=RestartBudget(restarts_max=restarts_max),
            ready=ready,
            may_finish=may_finish,
        )

    def environment(self) -> dict[str, str]:
        """Returns the environment of every component: the log, the device, one thread per numeric library, no look-ups
        outside."""
        places = ("CLAW_TRAINER_DEVICE", "CLAW_ROLLOUT_DEVICE") if self.device != "auto" else ()
        return {
            **dict.fromkeys(BROKER_NAMES, self.bootstrap),
            "CLAW_LOG_PREFIX": self.prefix,
            "CLAW_LOG_PARTITIONS": str(self.partitions),
            **dict.fromkeys(places, self.device),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "PYTHONUNBUFFERED": "1",
            "CLAW_TRAINER_WARNINGS_FILE": str(self.run_dir / TRAINER_WARNINGS),
            **self.env,
        }

    def gateway(self, port: int) -> Component:
        arguments = ("--port", str(port), "--worker-wait-s", str(WORKER_WAIT_S))
        return self.room("gateway", "claw_r1.gateway", *arguments, ready=answers(f"{door_url(port)}/readyz"))

    def streams(self) -> Component:
        return self.room("streams", "claw_r1.streams")

    def dashboard(self, port: int) -> Component:
        """The page of the pool and the runs."""
        arguments = ("--port", str(port))
        return self.room(
            "dashboard", "claw_r1.consumers.dashboard", *arguments, ready=answers(f"{door_url(port)}/live")
        )

    def rollout(self, place: WorkerPlace, model: Path, model_id: str, *arguments: str) -> Component:
        """One worker. It is not started again after it was drained; by its id a successor replaces one that was killed."""
        names = ("--model-id", model_id, "--served-name", model_id, "--worker-id", self.worker_id(place))
        vllm_log = self.run_dir / "logs" / f"{place.engine_name}.log"
        flags = ("--model", str(model), *names, "--log-file", str(vllm_log), *arguments)
        worker = self.room(place.name, "claw_r1.rollout", *flags, may_finish=True)
        environment = {**worker.env, **place.environment}
        return replace(worker, env=environment, budget=WORKER_BUDGET, cannot_start_code=CANNOT_START)

    def worker_id(self, place: WorkerPlace) -> str:
        """Returns the id of a worker of this host and this stack, so that several share a log."""
        return f"{os.uname().nodename}-{self.run_dir.name}-{place.name}"

    def trainer(self, config: Path, *arguments: str) -> Component:
        trainer = self.room("trainer", "claw_r1.trainer", "--config", str(config), *arguments, may_finish=True)
        return replace(trainer, finished_before_code=RUN_WAS_OVER)


def dashboard_port() -> int:
    """The one that people know, or where something else listens a free one."""
    return DASHBOARD_PORT if is_free(DASHBOARD_PORT) else free_ports(1)[0]


def answers(url: str) -> Callable[[], bool]:
    """A readiness probe: whether a GET of the URL says 200."""

    def probe() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=PROBE_TIMEOUT_S) as reply:
                return bool(reply.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    return probe


def remember(run_dir: Path, log: LogSettings) -> None:
    """Makes this run the one that `claw status` shows and `claw down` names. log: the one that it writes."""
    claw_home().mkdir(parents=True, exist_ok=True)
    address = {"bootstrap_servers": log.bootstrap_servers, "prefix": log.prefix}
    write_atomically(run_dir / LOG_FILE, json.dumps(address))
    write_atomically(run_dir / PROMETHEUS_FILE, json.dumps(prometheus_config(), indent=2))
    write_atomically(claw_home() / CURRENT, str(run_dir))


def prometheus_config() -> JsonDict:
    """Returns the configuration of a Prometheus that watches a stack from its folder: YAML, as all JSON is."""
    return {
        "global": {"scrape_interval": "15s", "evaluation_interval": "15s"},
        "rule_files": [str(ALERTS)] if ALERTS.exists() else [],
        "scrape_configs": [{"job_name": "claw", "file_sd_configs": [{"files": [TARGETS_FILE]}]}],
    }


def remembered_log(run_dir: Path) -> LogSettings | None:
    """Returns the log of a remembered run; None where that was not kept."""
    try:
        return LogSettings(**json.loads((run_dir / LOG_FILE).read_text()))
    except (OSError, ValueError):
        return None


def remembered() -> Path | None:
    """The run that was started last, whether it still runs or not."""
    path = claw_home() / CURRENT
    return Path(path.read_text()) if path.exists() else None
