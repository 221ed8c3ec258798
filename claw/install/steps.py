"""The steps of the setup, in order: look, check, install, try the CPU, fetch Kafka, hand over. Run by `claw/bootstrap.py` in a
checkout, and by `claw setup` where a wheel is installed.

Nothing is downloaded before every check has passed. Standard library only, as everything here.
"""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.home import PROJECT, claw_home, in_checkout, setup_command
from claw_r1.claw.install.command import run, say
from claw_r1.claw.install.cpu import settle
from claw_r1.claw.install.environment import PYTHON, VENV, add, install, is_current
from claw_r1.claw.install.machine import Lock, Machine, check, look

COMMANDS = ("demo", "test", "setup", "check")
HELP = {"-h", "--help"}
# Three files of tests at a time: most of them wait for engines and brokers. Each process has a broker of its own. `-n 0` undoes it.
# A process that dies is replaced, and costs the test that it ran (tests/scheduling.py).
SIDE_BY_SIDE = ["-n", "4", "--dist", "loadfile", "--no-loadscope-reorder", "--max-worker-restart", "100"]


def main(arguments: Sequence[str], usage: str) -> int:
    """Sets up, then becomes `claw demo` or pytest. Returns 2 with one line on stderr when something is missing."""
    if not arguments or arguments[0] not in COMMANDS:
        print(usage, file=sys.stderr)
        return 0 if set(arguments[:1]) & HELP else 2
    command, rest = arguments[0], list(arguments[1:])
    flags = set(rest) if command in {"setup", "check"} else set()
    if flags not in (set(), {"--gpu"}, {"--light"}):
        print(usage, file=sys.stderr)
        return 0 if flags & HELP else 2
    try:
        lock: Lock = "gpu" if "--gpu" in flags else "light" if "--light" in flags else "cpu"
        _set_up(look(lock), only_check=command == "check")
    except CannotRun as error:
        say(f"claw setup: {error}")
        return 2
    except KeyboardInterrupt:
        say("claw setup: interrupted; the next start goes on from here")
        return 130
    if command in {"demo", "test"}:
        _become(command, rest)
    return 0


def _set_up(machine: Machine, *, only_check: bool) -> None:
    started_s, current = time.monotonic(), is_current(machine.locks)
    say(first_line(machine, current=current, exists=VENV.exists()))
    check(machine, fresh=not current)
    if only_check:
        say("claw setup: this machine can run the demo")
        return
    if not current:
        install(machine.locks)
    _settle(machine, PYTHON, again=not current)
    if not current:
        say(f"claw setup: done in {time.monotonic() - started_s:.0f} s; the command is {VENV / 'bin' / 'claw'}")


def complete(lock: Lock, environment: Path, python: str | Path) -> None:
    """Gives the environment around an installed wheel the packages of `lock`, which pip alone cannot resolve, and Kafka.

    Raises `CannotRun` in a checkout, for a Python that is no environment of its own, and when something is missing.
    """
    if not (environment / "pyvenv.cfg").exists():
        raise CannotRun(
            f"{environment} is no environment of its own, and the versions in it change: install claw-r1 in one (python3 -m venv DIR)"
        )
    if in_checkout():
        raise CannotRun(f"this is a checkout, whose environment is made by `{setup_command()}`")
    started_s, machine = time.monotonic(), look(lock, environment)
    say(first_line(machine, current=False, exists=False))
    check(machine, fresh=True)
    add(machine.locks, python)
    _settle(machine, python, again=True)
    say(f"claw setup: done in {time.monotonic() - started_s:.0f} s")


def _settle(machine: Machine, python: str | Path, *, again: bool) -> None:
    """Tries the CPU and fetches Kafka, where they will be needed."""
    if machine.lock != "light":  # without torch nothing multiplies
        settle(machine.environment, again=again)
    if machine.runs_kafka:
        _fetch_kafka(python)


def first_line(machine: Machine, *, current: bool, exists: bool) -> str:
    """Returns what will be downloaded, the disk it needs and about how long it takes; nothing where a `.venv` is current."""
    if current:
        return "claw setup: everything is installed, nothing to download"
    if exists:
        return "claw setup: .venv is brought up to date; what the package cache lacks is downloaded"
    cost, kafka = machine.cost, ", Apache Kafka" if machine.runs_kafka else ""
    return (
        f"claw setup: downloads about {cost.download} once (Python packages{kafka}), needs {cost.disk_gib:.0f} GB of disk, "
        f"takes {cost.at_100_mb_s} at 100 MB/s and about {cost.at_5_mb_s} at 5 MB/s; less where the caches hold it"
    )


def _fetch_kafka(python: str | Path) -> None:
    """Kafka's jars, verified, into the cache of the claw home; a package that `python` finds says from where."""
    jars = claw_home() / "cache" / "jars"
    if not jars.exists():
        say("  Apache Kafka (44 MB)")
    run([python, "-P", "-m", "claw_r1.claw.local.jars"])
    if not list(jars.glob("*.jsa")):
        say("  Kafka's classes, archived once: it starts in half the time")
        run([python, "-P", "-m", "claw_r1.claw.install.class_archive"])


def _become(command: str, rest: list[str]) -> NoReturn:
    """Replaces this process, so that Ctrl-C and the exit code are the command's own."""
    demo = [str(VENV / "bin" / "claw"), "demo", *rest]
    program = demo if command == "demo" else [str(PYTHON), "-m", "pytest", *SIDE_BY_SIDE, *rest]
    sys.stdout.flush()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each of hundreds of processes compiles the sources anew
    os.chdir(PROJECT)
    os.execv(program[0], program)
