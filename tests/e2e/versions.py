"""Other versions of the house: the last release, before the first one the version
before the newest change of a schema; and one that may come next.
"""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def git(*words: str) -> bytes:
    """Returns what git prints of this checkout; the test is skipped where there is
    no history."""
    try:
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=True, timeout=60).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no history to take an earlier version from: {error}")


def earlier_version(folder: Path) -> Path:
    """Puts that version into the folder. Returns what its processes have as
    PYTHONPATH."""
    released = git("log", "-1", "--diff-filter=A", "--format=%H", "--", "claw/show/releases").decode().strip()
    changed = git("log", "-1", "--format=%H^", "--", "schemas/avro").decode().strip()
    with tarfile.open(fileobj=io.BytesIO(git("archive", "--format=tar", released or changed))) as archive:
        archive.extractall(folder, filter="tar")
    return folder / "infra" / "python"


def next_version(folder: Path) -> Path:
    """Copies this checkout, with one field more on the event that gateways write, and
    generates what follows from that. Returns what its processes have as PYTHONPATH."""
    path = folder / "infra" / "python"
    shutil.copytree(ROOT / "infra" / "python", path, symlinks=True)
    for link in (path / "claw_r1").iterdir():
        if link.is_symlink():
            shutil.copytree(ROOT / link.name, folder / link.name, ignore=shutil.ignore_patterns("__pycache__"))
    schema = folder / "schemas" / "avro" / "CallCaptured.avsc"
    fields = json.loads(schema.read_text())
    fields["fields"].append({"name": "that_comes_next", "type": "string", "default": "unknown"})
    schema.write_text(json.dumps(fields))
    generate = [sys.executable, "-m", "claw_r1.schemas.generate"]
    subprocess.run(generate, env={**os.environ, "PYTHONPATH": str(path)}, check=True, timeout=60)
    return path


def home_of(version: Mapping[str, str]) -> Path:
    """Asks a process of that version where its code stands."""
    return Path(_said(version, "import claw_r1.gateway as it; print(it.__file__)")).resolve()


def fold_version(version: Mapping[str, str]) -> int:
    """Asks a process of that version for the version of its folds."""
    return int(_said(version, "from claw_r1.datapool import FOLD_VERSION; print(FOLD_VERSION)"))


def _said(version: Mapping[str, str], code: str) -> str:
    asked = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **version}, capture_output=True, check=True, timeout=60
    )
    return asked.stdout.decode().strip()
