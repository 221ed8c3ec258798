"""`.venv` holds exactly what the locks name, and the project. uv does it; `.venv/claw-stamp`, written last, says of which locks.

An install that was cut off has no whole stamp and is taken up where it stopped: uv leaves what is right alone. An environment that
somebody else made, around a wheel, gets what a lock names and keeps what it has besides: `uv pip sync` would take claw away.
"""

import hashlib
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.home import PROJECT, claw_home, in_checkout
from claw_r1.claw.install.command import run, say
from claw_r1.runtime.processes.child import module_argv

VENV = PROJECT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "claw-stamp"
LOCKS = Path(__file__).with_name("locks")  # in the package, so that a wheel has them
UV = (PROJECT / ".tools" if in_checkout() else claw_home() / "cache") / "uv" / "bin" / "uv"
SUPPORTED = "import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))"


def is_current(locks: Sequence[Path]) -> bool:
    """Returns whether `.venv` was made from these locks and this project, and runs."""
    return STAMP.exists() and STAMP.read_text() == expected_stamp(locks) and _runs()


def expected_stamp(locks: Sequence[Path]) -> str:
    """Digest of all that decides what `.venv` holds: the locked packages; the project's own metadata and place."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    own = repr((project["project"], project["build-system"], project["tool"]["hatch"], str(PROJECT)))
    return hashlib.sha256(b"".join(lock.read_bytes() for lock in locks) + own.encode()).hexdigest()


def install(locks: Sequence[Path]) -> None:
    """Makes `.venv` hold the locks and the project. Raises `CannotRun` for a `.venv` that is not ours, and when uv fails."""
    _have_uv()
    if not _runs():
        if VENV.exists() and not STAMP.exists():
            raise CannotRun(f"{VENV} holds no Python 3.11 or 3.12, and claw did not make it: move it away")
        run([UV, "venv", "-q", "--clear", "-p", sys.executable, VENV])
    STAMP.write_text("")  # what is cut off from here on is whole under no lock
    _take(PYTHON, "sync", *locks)
    _pip(PYTHON, "install", "--no-deps", "--no-build-isolation", "-e", PROJECT)
    STAMP.write_text(expected_stamp(locks))


def add(locks: Sequence[Path], python: str | Path) -> None:
    """Gives the environment of `python` exactly the versions of the locks, beside what it holds. Raises `CannotRun` when uv fails."""
    _have_uv()
    _take(python, "install", "--no-deps", *(word for lock in locks for word in ("-r", lock)))


def _take(python: str | Path, *arguments: str | Path) -> None:
    """First from uv's cache alone, which needs no network and is silent when something is missing there."""
    say("  Python packages")
    hashed = (*arguments, "--require-hashes", "--compile-bytecode")
    try:
        _pip(python, *hashed, "--offline", quiet=True)
    except CannotRun:
        _pip(python, *hashed)


def _pip(python: str | Path, *arguments: str | Path, quiet: bool = False) -> None:
    verbosity = [] if sys.stderr.isatty() else ["-q"]  # a terminal shows the progress bar
    run([UV, "pip", arguments[0], *verbosity, "-p", python, *arguments[1:]], quiet=quiet)


def _have_uv() -> None:
    """uv of `locks/uv.txt`, in an environment of its own. Raises `CannotRun` when the package index cannot be reached."""
    if UV.exists():
        return
    say("  uv (the installer)")
    tool = UV.parents[1]
    run(module_argv("venv", str(tool)))
    run(
        [tool / "bin" / "python", "-m", "pip", "install", "-q", "--no-deps", "--require-hashes", "-r", LOCKS / "uv.txt"]
    )


def _runs() -> bool:
    """Returns whether `.venv` has a working Python 3.11 or 3.12."""
    try:
        return subprocess.run([PYTHON, "-c", SUPPORTED], check=False).returncode == 0
    except OSError:
        return False
