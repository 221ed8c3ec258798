"""Runs the programs of the setup, and says that they still run, on stderr: stdout belongs to
the command that follows."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.home import PROJECT, claw_home

HEARTBEAT_S = 15.0
GIB = 2**30


def say(line: str) -> None:
    """One line of progress."""
    print(line, file=sys.stderr, flush=True)


def run(command: Sequence[str | Path], *, quiet: bool = False) -> None:
    """Runs a program in the project; its errors and progress are seen unless it is `quiet`. Raises `CannotRun` when it fails.

    Where no terminal shows a progress bar, a line every few seconds says that it still goes on.
    """
    errors = subprocess.DEVNULL if quiet else None
    started_s, free_at_start = time.monotonic(), shutil.disk_usage(PROJECT).free
    with subprocess.Popen(
        command, cwd=PROJECT, env=_environment(), stdout=subprocess.DEVNULL, stderr=errors
    ) as process:
        while process.returncode is None:
            try:
                process.wait(HEARTBEAT_S)
            except subprocess.TimeoutExpired:
                written_gib = max(0, free_at_start - shutil.disk_usage(PROJECT).free) / GIB
                say(f"    {time.monotonic() - started_s:.0f} s, {written_gib:.1f} GB on disk")
    if process.returncode:
        words = " ".join(str(word) for word in command[:4])
        raise CannotRun(f"`{words} …` failed with exit code {process.returncode}; its output stands above")


def _environment() -> dict[str, str]:
    # The programs run in another folder, by which a home that is not named would be another one.
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never", "CLAW_HOME": str(claw_home())}
    if index := os.environ.get("PIP_INDEX_URL"):
        environment.setdefault("UV_DEFAULT_INDEX", index)  # uv does not read pip's settings
    return environment
