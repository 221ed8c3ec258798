"""`claw doctor`: what would not hold on this machine or this broker, each finding with what to do about it."""

import importlib.util
import os
import resource
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from claw_r1.claw import bf16
from claw_r1.claw.answers import Answer
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.home import claw_home
from claw_r1.claw.local.java import find_java
from claw_r1.claw.show.doctor_log import Finding, Severity, log_findings
from claw_r1.runtime.modules import EXTRAS, absent

DISK_FREE_MIN_GIB = 5
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # looked at, nothing is written there
SHARED_FREE_MIN_GIB = 1
FILES_MIN = 4096


def run_doctor(*, prefix: str) -> Answer:
    """Checks everything; exit code 1 when one is bad."""
    findings = [*machine(), *log_findings(prefix)]
    lines = [f"{finding.state:<5} {finding.check:<12} {finding.says}" for finding in findings]
    ok = all(finding.state != "bad" for finding in findings)
    return Answer({"ok": ok, "findings": findings}, lines, 0 if ok else 1)


def machine() -> Iterator[Finding]:
    """Disk, Java, the CPU, and which rooms' libraries are installed."""
    yield disk("disk", claw_home().parent, DISK_FREE_MIN_GIB, "bad")
    if SHARED_MEMORY.is_dir():
        yield disk("shared", SHARED_MEMORY, SHARED_FREE_MIN_GIB, "note")
    yield files(resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    try:
        yield Finding("java", "ok", str(find_java()))
    except CannotRun as none:
        yield Finding("java", "note", str(none))
    for room in EXTRAS:
        missing = absent(room)
        yield Finding(
            room,
            "note" if missing else "ok",
            f"not installed: {', '.join(missing)} (extra `{room}`)" if missing else "libraries installed",
        )
    if importlib.util.find_spec("torch"):
        yield cpu(Path(sys.prefix), bf16.product())


def disk(check: str, directory: Path, free_min_gib: float, short: Severity) -> Finding:
    """Finds out whether there is room: for logs and views, and in memory for two versions of a model."""
    free_gib = shutil.disk_usage(directory).free / 2**30
    enough = free_gib > free_min_gib
    more = "" if enough else f": less than {free_min_gib:g}, make room on the disk of {directory}"
    return Finding(check, "ok" if enough else short, f"{free_gib:.0f} GiB free{more}")


def files(hard: int) -> Finding:
    """Finds out whether a gateway may open a file for each of many connections. hard: the limit of this user."""
    if hard == resource.RLIM_INFINITY or hard >= FILES_MIN:
        return Finding("files", "ok", "many may be open at once")
    return Finding("files", "note", f"{hard:,} may be open at once: many connections need more; raise `ulimit -Hn`")


def cpu(environment: Path, command: Sequence[str | Path]) -> Finding:
    """Finds out whether torch can multiply in bf16: as the set-up found, else tried now by the child `command`, which
    takes seconds."""
    try:
        trial = bf16.recorded(environment) or bf16.tried(command)
    except CannotRun as unknown:
        return Finding("cpu", "note", str(unknown))
    mended = trial.outcome == "capped" and any(name in os.environ for name in bf16.VARIABLES)
    return Finding("cpu", "ok" if trial.outcome == "runs" else "note" if mended else "bad", bf16.words(trial))
