"""The part of `claw doctor` that looks at this machine, as the
variables of this process describe it."""

import importlib.util
import os
import resource
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from claw_r1.claw import bf16
from claw_r1.claw.home import claw_home
from claw_r1.claw.local.java import find_java
from claw_r1.claw.show.doctor.findings import Finding, checked, error, ok, warning
from claw_r1.gateway.settings import GatewaySettings
from claw_r1.runtime.modules import EXTRAS, NO_PIP, absent
from claw_r1.runtime.monitoring.registry import disk_bytes

SHARED_MEMORY = "/dev/shm"  # noqa: S108  # looked at, nothing is written there
FILES_MIN = 4096


def machine_findings() -> Iterator[Finding]:
    """Disks, open files, Java, the CPU, and which rooms' libraries are installed."""
    for check, place, free_min_gib in places():
        short = error if check == "disk" else warning
        yield from checked(check, partial(disk, place, free_min_gib, short))
    yield from checked("spool", lambda: spool(GatewaySettings.model_validate({})))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    yield from checked("files", lambda: files(hard))
    yield from checked("java", lambda: ok(str(find_java())), "only a broker here needs it")
    for extra in EXTRAS:
        yield from checked(extra, partial(libraries, extra))
    if importlib.util.find_spec("torch"):
        yield from checked("cpu", lambda: cpu(Path(sys.prefix), bf16.product()), "train in fp32")


def places() -> Iterator[tuple[str, Path, float]]:
    """Check, directory, and the GiB that it needs."""
    home, of = claw_home(), os.environ.get
    yield "disk", home, 5
    yield "views", Path(of("CLAW_LOG_VIEWS_DIR", home / "views")), 1
    yield "checkpoints", Path(of("CLAW_TRAINER_OUT_DIR", home)), 5
    yield "shared", Path(of("CLAW_ROLLOUT_COPIES_DIR", SHARED_MEMORY)), 1


def disk(directory: Path, free_min_gib: float, short: partial[Finding] = warning) -> Finding:
    """Finds out whether there is room in a directory, or in the next one above where there is none of that name yet."""
    free_gib = disk_bytes(directory, "free") / 2**30
    says = f"{free_gib:.1f} GiB free for {directory}"
    if free_gib >= free_min_gib:
        return ok(says)
    return short(f"{says}: less than {free_min_gib:g}", f"make room on the disk of {directory}")


def spool(settings: GatewaySettings) -> Finding:
    """Finds out whether the disk takes what each process of a gateway may write while the log is away."""
    bound = settings.spool_bytes_max * settings.workers
    return disk(settings.spool_dir, bound / 2**30)


def files(hard: int) -> Finding:
    """Finds out whether a gateway may open a file for each of many connections. hard: the limit of this user."""
    if hard == resource.RLIM_INFINITY or hard >= FILES_MIN:
        return ok("many may be open")
    says = f"{hard:,} may be open, many connections need more"
    return warning(says, f"raise `ulimit -Hn` to {FILES_MIN}")


def libraries(room: str) -> Finding:
    """Finds out whether the libraries of a room are installed."""
    if not (missing := absent(room)):
        return ok("libraries installed")
    install = NO_PIP.get(room, f"pip install 'claw-r1[{room}]'")
    return warning(f"not installed: {', '.join(missing)}", f"to run it here: {install}")


def cpu(environment: Path, command: Sequence[str | Path]) -> Finding:
    """Finds out whether torch can multiply in bf16: as the set-up
    found, else by the child `command`, which takes seconds.

    Raises CannotRun where that tells nothing.
    """
    trial = bf16.recorded(environment) or bf16.tried(command)
    says = bf16.words(trial)
    if trial.outcome == "runs":
        return ok(says)
    if trial.outcome == "dies":
        return error(says, "set CLAW_TRAINER_PRECISION=fp32")
    capped = warning if any(name in os.environ for name in bf16.VARIABLES) else error
    return capped(says, f"set {bf16.VARIABLES[0]}={bf16.WITHOUT_AMX}")
