"""The steps of the setup, in order: look, check, install, try the CPU, fetch Kafka, hand over. Run by `claw/bootstrap.py`.

Nothing is downloaded before every check has passed. Standard library only, as everything here.
"""

import os
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.home import PROJECT, claw_home
from infra.install.command import run, say
from infra.install.cpu import settle
from infra.install.environment import PYTHON, VENV, install, is_current
from infra.install.machine import Machine, check, look, needed_gib

COMMANDS = ("demo", "test", "setup", "check")
# Three files of tests at a time: most of them wait for engines and brokers. Each process has a broker of its own. `-n 0` undoes it.
# A process that dies is replaced, and costs the test that it ran (tests/scheduling.py).
SIDE_BY_SIDE = ["-n", "3", "--dist", "loadfile", "--no-loadscope-reorder", "--max-worker-restart", "100"]


def main(arguments: Sequence[str], usage: str) -> int:
    """Sets up, then becomes `claw demo` or pytest. Returns 2 with one line on stderr when something is missing."""
    if not arguments or arguments[0] not in COMMANDS:
        print(usage, file=sys.stderr)
        return 0 if arguments and arguments[0] in {"-h", "--help"} else 2
    command, rest = arguments[0], list(arguments[1:])
    try:
        flags = set(rest) if command in {"setup", "check"} else set()
        _set_up(look(gpu="--gpu" in flags, light="--light" in flags), only_check=command == "check")
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
    if not machine.light:  # without torch nothing multiplies
        settle(VENV, again=not current)
    if machine.broker is None:
        _fetch_kafka()
    if not current:
        say(f"claw setup: done in {time.monotonic() - started_s:.0f} s; the command is {VENV / 'bin' / 'claw'}")


def first_line(machine: Machine, *, current: bool, exists: bool) -> str:
    """Returns what will be downloaded, the disk it needs and about how long it takes; nothing where a `.venv` is current."""
    if current:
        return "claw setup: everything is installed, nothing to download"
    if exists:
        return "claw setup: .venv is brought up to date; what the package cache lacks is downloaded"
    size, at_100, at_5 = ("0.2 GB", "seconds", "1 minute") if machine.light else ("3 GB", "1-2 minutes", "10")
    return (
        f"claw setup: downloads about {size} once (Python packages, Apache Kafka), needs {needed_gib(machine):.0f} GB of disk, "
        f"takes {at_100} at 100 MB/s and about {at_5} at 5 MB/s; less where the caches hold it"
    )


def _fetch_kafka() -> None:
    """Kafka's jars, verified, into the cache of the claw home; a package in `.venv` says from where."""
    if not (claw_home() / "cache" / "jars").exists():
        say("  Apache Kafka (44 MB)")
    run([PYTHON, "-m", "claw_r1.claw.local.jars"])


def _become(command: str, rest: list[str]) -> NoReturn:
    """Replaces this process, so that Ctrl-C and the exit code are the command's own."""
    demo = [str(VENV / "bin" / "claw"), "demo", *rest]
    program = demo if command == "demo" else [str(PYTHON), "-m", "pytest", *SIDE_BY_SIDE, *rest]
    sys.stdout.flush()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each of hundreds of processes compiles the sources anew
    os.chdir(PROJECT)
    os.execv(program[0], program)
