"""`claw up` and `claw down`: a stack that stays until it is stopped, watched by one manager process."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.home import claw_home
from claw_r1.claw.local.broker import resolve_broker
from claw_r1.claw.local.ports import free_ports, is_free
from claw_r1.claw.local.settings import UpSettings
from claw_r1.claw.local.stack import PROMETHEUS_FILE, Stack, dashboard_port, remember, remembered
from claw_r1.claw.local.status_file import read_manager, read_status, write_status
from claw_r1.claw.tls.tls_dir import door_url, secured_stack
from claw_r1.claw.workers.places import WorkerPlace, refuse_device, refuse_model, worker_places
from claw_r1.eventlog.kafka.admin import with_topics
from claw_r1.eventlog.locks import take_lock
from claw_r1.eventlog.settings import LogSettings
from claw_r1.runtime.processes.child import module_argv
from claw_r1.runtime.processes.component import Component, State
from claw_r1.runtime.processes.process_identity import ProcessId
from claw_r1.runtime.processes.processes import Processes
from claw_r1.runtime.stop_signals import StopSignals

if TYPE_CHECKING:
    from claw_r1.trainer.settings import TrainerSettings

POLL_S = 0.2
UP_TIMEOUT_S = 300.0
DOWN_TIMEOUT_S = 20.0
SUMMARY_BEGINS = "broker "
"""Nothing else in the manager's log begins so."""


def run_up(settings: UpSettings, *, foreground: bool) -> int:
    """Starts the stack and returns when it is up; with `foreground` stays until Ctrl-C. Raises CannotRun."""
    secured_stack(settings.tls_dir)
    _refuse_bad(settings)
    places = places_of(settings)
    trainer = trainer_settings(settings)
    if foreground:
        with _alone("manager.lock"):
            return _serve(settings, trainer, places)
    with _alone("starting.lock"):  # apart from the manager's, which is our child's; who holds it writes manager.log
        return _detach(settings)


@contextmanager
def _alone(lock_name: str) -> Iterator[None]:
    """Raises CannotRun where a stack runs or another process holds the lock: two managers would write one status, and
    `claw down` finds the one that it names."""
    run_dir = claw_home() / "up"
    run_dir.mkdir(parents=True, exist_ok=True)
    lock = take_lock(run_dir / lock_name)
    try:
        if (manager := _manager()) is not None:
            raise CannotRun(f"a stack runs already (manager pid {manager.pid}): `claw status`, `claw down`")
        if lock is None:
            raise CannotRun(f"another `claw up` starts in {run_dir}: wait for it, and look by `claw status`")
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _refuse_bad(settings: UpSettings) -> None:
    if settings.port and not is_free(settings.port):
        raise CannotRun(
            f"port {settings.port} is in use by another program: choose another with --port (0 takes a free one)"
        )
    if settings.model and not (settings.model / "config.json").exists():
        raise CannotRun(f"{settings.model} is no HF model directory: it has no config.json")
    if settings.config and not settings.config.is_file():
        raise CannotRun(f"{settings.config} is no file: --config takes the trainer's settings (YAML)")


def places_of(settings: UpSettings) -> list[WorkerPlace]:
    """The workers to start: none without a model. Raises CannotRun for what no worker could do."""
    workers = (settings.workers or 1) if settings.model else 0
    refuse_device(settings.device, workers=workers, gpus=settings.gpus)
    if settings.model is None:
        if settings.workers or settings.gpus or settings.tp > 1:
            raise CannotRun("--workers, --gpus and --tp are of workers, and without --model none is started")
        return []
    refuse_model(settings.model, settings.tp)
    return worker_places(settings.workers, settings.gpus, settings.tp)


def trainer_settings(settings: UpSettings) -> "TrainerSettings | None":
    """Returns the settings that the trainer of `--config` will read. Raises CannotRun when it cannot start, or not
    together with `--model`."""
    if settings.config is None:
        return None
    from claw_r1.trainer.config import offer
    from claw_r1.trainer.errors import TrainerError
    from claw_r1.trainer.learn import model
    from claw_r1.trainer.settings import load

    try:
        trainer = load(["--config", str(settings.config)])
        model.check(trainer.model_dir)
        offer.check(trainer)
    except TrainerError as error:
        raise CannotRun(f"{settings.config}: {error}") from error
    if settings.model and settings.model.resolve() != trainer.model_dir.resolve():
        raise CannotRun(
            f"--model {settings.model} is not model_dir {trainer.model_dir} of {settings.config}: "
            "worker and trainer start from one directory"
        )
    return trainer


def _refuse_other_log(trainer: "TrainerSettings", stack: Stack) -> None:
    """A trainer on another log than its stack would wait for ever, in silence. Raises CannotRun."""
    places = {
        "bootstrap_servers": (trainer.bootstrap_servers, stack.bootstrap),
        "topic_prefix": (trainer.topic_prefix, stack.prefix),
        "topic_partitions": (trainer.topic_partitions, stack.partitions),
    }
    for name, (configured, actual) in places.items():
        if configured not in (None, actual):
            raise CannotRun(
                f"{name} {configured} of --config is not that of this stack, {actual}: remove it from the file"
            )


def _serve(settings: UpSettings, trainer: "TrainerSettings | None", places: list[WorkerPlace]) -> int:
    stop = StopSignals()
    run_dir = claw_home() / "up"
    write_status(run_dir, [])  # from here on, `claw down` can stop this process
    with resolve_broker() as broker, Processes(partial(write_status, run_dir), excuse=broker.is_away) as processes:
        stack = _stack(settings, run_dir, broker.bootstrap)
        port = settings.port or free_ports(1)[0]
        rooms = components(settings, trainer, stack, places)
        for component in (stack.gateway(port), stack.streams(), *rooms):
            processes.start(component)
        remember(run_dir, LogSettings(bootstrap_servers=broker.bootstrap, prefix=settings.prefix))
        parts = [f"{SUMMARY_BEGINS}{broker.bootstrap}", f"gateway {door_url(port)}", f"logs {run_dir / 'logs'}"]
        parts.append(f"metrics {run_dir / PROMETHEUS_FILE}")
        if settings.dashboard:
            page_port = dashboard_port()
            processes.start(stack.dashboard(page_port))
            parts.append(f"dashboard {door_url(page_port)}")
        if trainer:  # agents must name this run and this model, or the trainer does not take what they play
            parts.append(f"run {trainer.run_id} trains {trainer.model_id}")
        print(", ".join(parts), flush=True)
        while not stop.wait():
            broker.look_after()
            processes.poll()
    return 0


def components(
    settings: UpSettings, trainer: "TrainerSettings | None", stack: Stack, places: list[WorkerPlace]
) -> list[Component]:
    """The workers and the trainer that the settings name. With a trainer the workers follow its run of its model, by its id.

    Raises CannotRun when the trainer's settings contradict the stack.
    """
    if trainer:
        _refuse_other_log(trainer, stack)
    rooms = []
    if model := settings.model:
        model_id = trainer.model_id if trainer else model.absolute().name
        run = ("--run-id", trainer.run_id) if trainer else ()
        rooms += [stack.rollout(place, model, model_id, *run) for place in places]
    if settings.config:
        rooms.append(stack.trainer(settings.config))
    return rooms


def _stack(settings: UpSettings, run_dir: Path, bootstrap: str) -> Stack:
    log_settings = with_topics(LogSettings(bootstrap_servers=bootstrap, prefix=settings.prefix))
    return Stack(
        run_dir=run_dir,
        bootstrap=bootstrap,
        prefix=settings.prefix,
        partitions=log_settings.partitions,
        device=settings.device,
    )


def _detach(settings: UpSettings) -> int:
    run_dir = claw_home() / "up"
    options = ["--foreground", "--port", str(settings.port), "--prefix", settings.prefix]
    options += ["--device", settings.device, "--tp", str(settings.tp)]
    options += ["--dashboard"] if settings.dashboard else []
    options += ["--workers", str(settings.workers)] if settings.workers else []
    options += ["--gpus", settings.gpus] if settings.gpus else []
    options += ["--model", str(settings.model)] if settings.model else []
    options += ["--config", str(settings.config)] if settings.config else []
    with (run_dir / "manager.log").open("wb") as output:
        command = module_argv("claw_r1.claw.cli", "up", *options)
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    deadline = time.monotonic() + UP_TIMEOUT_S
    while (line := summary_when_up(run_dir, child.pid)) is None:
        if child.poll() is not None:
            raise CannotRun(_last_line(run_dir / "manager.log"))
        if time.monotonic() > deadline:
            raise CannotRun(
                f"not all of the stack runs after {UP_TIMEOUT_S:.0f} s: look by `claw status`, end it by `claw down`"
            )
        time.sleep(POLL_S)
    print(line)
    return 0


def summary_when_up(run_dir: Path, manager_pid: int) -> str | None:
    """Returns the addresses of the stack as its manager printed them, once every component runs, or has done its work already; None
    before. The manager prints them when it has started the last one, and then logs what it sees."""
    manager, states = read_manager(run_dir), read_status(run_dir)
    if manager is None or manager.pid != manager_pid or not states:
        return None
    lines = (run_dir / "manager.log").read_text(errors="replace").splitlines()
    is_up = all(each.state in (State.RUNNING, State.FINISHED) for each in states)
    return next((line for line in lines if line.startswith(SUMMARY_BEGINS)), None) if is_up else None


def _last_line(path: Path) -> str:
    lines = path.read_text().strip().splitlines() if path.exists() else []
    return lines[-1].removeprefix("claw: ") if lines else f"the stack did not come up; its log: {path}"


def _manager() -> ProcessId | None:
    return read_manager(claw_home() / "up")


def run_down() -> int:
    """Stops the manager of `claw up`, which stops everything. Exit code 1 when nothing ran."""
    manager = _manager()
    if manager is None:
        print(f"nothing to stop: no `claw up` runs (last started: {remembered() or 'nothing'})")
        return 1
    manager.stop(DOWN_TIMEOUT_S)
    print("stopped")
    return 0
