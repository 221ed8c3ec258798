"""`claw up` and `claw down`: a stack that stays until it is stopped, watched by one manager process."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from claw.errors import CannotRun
from claw.home import claw_home
from claw.local.broker import resolve_broker
from claw.local.ports import free_ports, is_free
from claw.local.stack import DEMO_PARTITIONS, Stack, one_device, remember, remembered
from claw.local.status_file import STATUS_FILE, read_status, write_status
from eventlog.kafka.admin import create_topics, describe_topics
from eventlog.settings import LogSettings
from schemas.runtime.component import Component, State
from schemas.runtime.identity import ProcessId
from schemas.runtime.processes import Processes
from schemas.runtime.stop_signals import StopSignals
from weights.device import Device

if TYPE_CHECKING:
    from trainer.settings import TrainerSettings

MANAGER_FILE = "manager.json"
POLL_S = 0.2
UP_TIMEOUT_S = 300.0
DOWN_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UpSettings:
    """What to start."""

    model: Path | None = None
    config: Path | None = None
    port: int = 8000
    prefix: str = "claw"
    device: str = "auto"


def run_up(settings: UpSettings, *, foreground: bool) -> int:
    """Starts the stack and returns when it is up; with `foreground` stays until Ctrl-C. Raises CannotRun."""
    _refuse_bad(settings)
    device = device_of(settings)
    if (manager := _manager()) is not None:
        raise CannotRun(f"a stack runs already (manager pid {manager.pid}): `claw status`, `claw down`")
    if foreground:
        return _serve(settings, device)
    return _detach(settings, device)


def _refuse_bad(settings: UpSettings) -> None:
    if settings.port and not is_free(settings.port):
        raise CannotRun(
            f"port {settings.port} is in use by another program: choose another with --port (0 takes a free one)"
        )
    if settings.model and not (settings.model / "config.json").exists():
        raise CannotRun(f"{settings.model} is no HF model directory: it has no config.json")
    if settings.config and not settings.config.is_file():
        raise CannotRun(f"{settings.config} is no file: --config takes the trainer's settings (YAML)")


def trained(settings: UpSettings) -> "TrainerSettings | None":
    """What the trainer of `--config` will read. Raises CannotRun when it cannot start, or not together with `--model`."""
    if settings.config is None:
        return None
    from trainer.errors import TrainerError
    from trainer.learn import model
    from trainer.settings import load

    try:
        chosen = load(settings.config, {})
        model.check(chosen.model_dir)
    except TrainerError as error:
        raise CannotRun(f"{settings.config}: {error}") from error
    if settings.model and settings.model.resolve() != chosen.model_dir.resolve():
        raise CannotRun(
            f"--model {settings.model} is not model_dir {chosen.model_dir} of {settings.config}: "
            "worker and trainer start from one directory"
        )
    return chosen


def device_of(settings: UpSettings) -> Device:
    """Of trainer and worker alike. Raises CannotRun as `trained` does, and when two places name two devices."""
    chosen = trained(settings)
    asked = {
        "--device": settings.device,
        str(settings.config): chosen.device if chosen else None,
        "CLAW_ROLLOUT_DEVICE": os.environ.get("CLAW_ROLLOUT_DEVICE") if settings.model else None,
    }
    return one_device(asked, serves=settings.model is not None)


def _refuse_other_log(chosen: "TrainerSettings", stack: Stack) -> None:
    """A trainer on another log than its stack would wait for ever, in silence. Raises CannotRun."""
    meant = {
        "bootstrap_servers": (chosen.bootstrap_servers, stack.bootstrap),
        "topic_prefix": (chosen.topic_prefix, stack.prefix),
        "topic_partitions": (chosen.topic_partitions, stack.partitions),
    }
    for name, (asked, there) in meant.items():
        if asked not in (None, there):
            raise CannotRun(f"{name} {asked} of --config is not that of this stack, {there}: drop it there")


def _serve(settings: UpSettings, device: Device) -> int:
    stop = StopSignals()
    run_dir = claw_home() / "up"
    run_dir.mkdir(parents=True, exist_ok=True)
    manager = ProcessId.of(os.getpid())
    if manager:
        manager.save(run_dir / MANAGER_FILE)
    with resolve_broker() as broker, Processes(partial(write_status, run_dir)) as processes:
        stack = _stack(settings, run_dir, broker.bootstrap, device)
        port = settings.port or free_ports(1)[0]
        rooms = components(settings, stack)
        for component in (stack.gateway(port), stack.streams(), *rooms):
            processes.start(component)
        remember(run_dir)
        what = [f"broker {broker.bootstrap}", f"gateway http://127.0.0.1:{port}", f"logs {run_dir / 'logs'}"]
        print(", ".join([*what, *_training(settings, stack.device)]), flush=True)
        while not stop.wait():
            processes.poll()
    return 0


def _training(settings: UpSettings, device: str) -> list[str]:
    """What agents must name so that the trainer takes what they play."""
    chosen = trained(settings)
    return [f"run {chosen.run_id} trains {chosen.model_id} on {device}"] if chosen else []


def components(settings: UpSettings, stack: Stack) -> list[Component]:
    """The worker and the trainer that were asked for. With a trainer the worker follows its run of its model, by its id.

    Raises CannotRun when the trainer's settings contradict the stack.
    """
    chosen = trained(settings)
    if chosen:
        _refuse_other_log(chosen, stack)
    rooms = []
    if settings.model and chosen:
        rooms.append(stack.rollout(settings.model, chosen.model_id, "--run-id", chosen.run_id))
    elif settings.model:
        rooms.append(stack.rollout(settings.model, settings.model.absolute().name))
    if settings.config:
        rooms.append(stack.trainer(settings.config))
    return rooms


def _stack(settings: UpSettings, run_dir: Path, bootstrap: str, device: Device) -> Stack:
    """Creates missing topics; a prefix that exists keeps its partition count."""
    there = describe_topics(LogSettings(bootstrap_servers=bootstrap, prefix=settings.prefix))
    partitions = there[0].partitions if there else DEMO_PARTITIONS
    create_topics(LogSettings(bootstrap_servers=bootstrap, prefix=settings.prefix, partitions=partitions))
    return Stack(
        run_dir=run_dir,
        bootstrap=bootstrap,
        prefix=settings.prefix,
        partitions=partitions,
        device=device,
    )


def _detach(settings: UpSettings, device: Device) -> int:
    run_dir = claw_home() / "up"
    run_dir.mkdir(parents=True, exist_ok=True)
    (run_dir / STATUS_FILE).unlink(missing_ok=True)
    options = ["--foreground", "--port", str(settings.port), "--prefix", settings.prefix, "--device", device]
    options += ["--model", str(settings.model)] if settings.model else []
    options += ["--config", str(settings.config)] if settings.config else []
    with (run_dir / "manager.log").open("wb") as output:
        command = [sys.executable, "-m", "claw.cli", "up", *options]
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    deadline = time.monotonic() + UP_TIMEOUT_S
    while not _all_running(run_dir):
        if child.poll() is not None or time.monotonic() > deadline:
            raise CannotRun(_last_line(run_dir / "manager.log"))
        time.sleep(POLL_S)
    print((run_dir / "manager.log").read_text().strip().splitlines()[-1])
    return 0


def _all_running(run_dir: Path) -> bool:
    states = read_status(run_dir)
    return (
        bool(states) and (run_dir / "manager.log").stat().st_size > 0 and all(s.state is State.RUNNING for s in states)
    )


def _last_line(path: Path) -> str:
    lines = path.read_text().strip().splitlines() if path.exists() else []
    return lines[-1].removeprefix("claw: ") if lines else f"the stack did not come up; its log: {path}"


def _manager() -> ProcessId | None:
    return ProcessId.load(claw_home() / "up" / MANAGER_FILE)


def run_down() -> int:
    """Stops the manager of `claw up`, which stops everything. Exit code 1 when nothing ran."""
    manager = _manager()
    if manager is None:
        print(f"nothing to stop: no `claw up` runs (last started: {remembered() or 'nothing'})")
        return 1
    manager.stop(DOWN_TIMEOUT_S)
    print("stopped")
    return 0
