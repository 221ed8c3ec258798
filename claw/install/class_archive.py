"""Kafka's classes in an archive of the JVM's own: a node, or a tool of Kafka, starts in half the time with it.

Made once by the setup; where there is none, or another Java than the one that made it, everything works as well, a little later.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.local import ports as tcp
from claw_r1.claw.local.jars import kafka_jars
from claw_r1.claw.local.java import find_java
from claw_r1.claw.local.kafka.config import class_archive, java_command
from claw_r1.claw.local.kafka.node import HEAP_MIB, START_TIMEOUT_S, STOP_TIMEOUT_S, LocalBroker

POLL_S = 0.05


def make() -> Path | None:
    """Runs a node until it answers, and has its JVM write the archive as it ends; None: it could not. Raises CannotRun."""
    java, jars = find_java(), kafka_jars()
    archive = class_archive(java, jars)
    unfinished = archive.with_suffix(f".{os.getpid()}")
    if archive.exists():
        return archive
    with tempfile.TemporaryDirectory() as folder:
        with LocalBroker(Path(folder)) as node:  # formats the folder, and finds ports
            port = int(node.bootstrap.rpartition(":")[2])
        log4j = Path(folder, "log4j2.yaml")  # the node's own
        command = java_command(java, jars, log4j, HEAP_MIB, ["kafka.Kafka", str(Path(folder, "server.properties"))])
        command.insert(1, f"-XX:ArchiveClassesAtExit={unfinished}")
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as jvm:
            deadline_s = time.monotonic() + START_TIMEOUT_S
            while jvm.poll() is None and time.monotonic() < deadline_s and not tcp.kafka_answers("127.0.0.1", port):
                time.sleep(POLL_S)
            jvm.terminate()
            try:
                jvm.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                jvm.kill()
        if _is_usable(java, jars, log4j, unfinished):
            return unfinished.rename(archive)
    unfinished.unlink(missing_ok=True)
    return None


def _is_usable(java: Path, jars: Path, log4j: Path, archive: Path) -> bool:
    """Half an archive, as a full disk leaves it, ends each JVM that reads it."""
    command = java_command(java, jars, log4j, HEAP_MIB, ["kafka.Kafka", "--version"])
    command.insert(1, f"-XX:SharedArchiveFile={archive}")
    return (
        archive.exists() and subprocess.run(command, capture_output=True, timeout=60, cwd=log4j.parent).returncode == 0
    )


def main() -> int:
    """Exit status: 0, whether or not there is an archive now."""
    try:
        make()
    except (CannotRun, OSError) as error:
        print(f"claw: Kafka's classes are not archived, its nodes start a little later: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
