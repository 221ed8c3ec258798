"""`claw doctor`: what would not hold on this machine or this broker, each finding with what to do about it."""

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from claw_r1.claw import bf16
from claw_r1.claw.answers import Answer
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.home import claw_home
from claw_r1.claw.local.java import find_java
from claw_r1.claw.show.log import log_for_reading
from claw_r1.eventlog.errors import LogError
from claw_r1.eventlog.kafka.admin import check_broker, describe_topics, diff_topics
from claw_r1.eventlog.settings import LogSettings
from claw_r1.runtime.modules import EXTRAS, absent

DISK_FREE_MIN_GIB = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: `ok`, `note` (acceptable on a local stack, for example) or `bad` (something would not hold)."""

    check: str
    state: Literal["ok", "note", "bad"]
    says: str


def run_doctor(*, prefix: str) -> Answer:
    """Checks everything; exit code 1 when one is bad."""
    findings = [*machine(), *broker(prefix)]
    lines = [f"{finding.state:<5} {finding.check:<12} {finding.says}" for finding in findings]
    ok = all(finding.state != "bad" for finding in findings)
    return Answer({"ok": ok, "findings": findings}, lines, 0 if ok else 1)


def machine() -> Iterator[Finding]:
    """Disk, Java, the CPU, and which rooms' libraries are installed."""
    free_gib = shutil.disk_usage(claw_home().parent).free / 2**30
    yield Finding("disk", "ok" if free_gib > DISK_FREE_MIN_GIB else "bad", f"{free_gib:.0f} GiB free")
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


def cpu(environment: Path, command: Sequence[str | Path]) -> Finding:
    """Finds out whether torch can multiply in bf16: as the set-up found, else tried now by the child `command`, which
    takes seconds."""
    try:
        trial = bf16.recorded(environment) or bf16.tried(command)
    except CannotRun as unknown:
        return Finding("cpu", "note", str(unknown))
    mended = trial.outcome == "capped" and any(name in os.environ for name in bf16.VARIABLES)
    return Finding("cpu", "ok" if trial.outcome == "runs" else "note" if mended else "bad", bf16.words(trial))


def broker(prefix: str) -> Iterator[Finding]:
    """Finds out whether a broker answers, has the catalogue's topics, and replicates them."""
    try:
        with log_for_reading(prefix) as settings:
            info = check_broker(settings)
            yield Finding(
                "broker", "ok", f"{settings.bootstrap_servers} answers, with the brokers {', '.join(info.brokers)}"
            )
            yield from topics(settings)
    except (CannotRun, LogError) as unreachable:
        yield Finding("broker", "bad", str(unreachable))


def topics(settings: LogSettings) -> Iterator[Finding]:
    states = describe_topics(settings)
    if not states:
        yield Finding("topics", "bad", f"none with prefix {settings.prefix}: run `claw topics create`")
        return
    as_created = settings.model_copy(update={"partitions": states[0].partitions, "replication": states[0].replication})
    for difference in diff_topics(as_created):
        yield Finding("topics", "bad", difference)
    replication = min(state.replication for state in states)
    single = "one replica: a lost disk is lost data; 3 replicas with min.insync.replicas 2 outside the local stack"
    yield Finding(
        "replication", "ok" if replication >= 3 else "note", f"{replication} replicas" if replication >= 3 else single
    )
