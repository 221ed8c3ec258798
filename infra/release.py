"""`make release VERSION=0.1.0`: writes what a version freezes, builds it, and prints what a person must do.

It commits nothing and sends nothing. Frozen is what `claw upgrade` says of this tree: schemas, folds, topics, settings,
and the bytes of one event of each type, which every later version must read (`tests/claw/show/test_upgrade.py`).
"""

import datetime
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from claw_r1.claw.show.upgrade import RELEASES, record
from claw_r1.schemas.json_values import JsonDict

ROOT = Path(__file__).parents[1]
FINAL = re.compile(r"\d+\.\d+\.\d+")
OWN_VERSION = re.compile(r'^version = "(.+)"$', re.MULTILINE)
STEPS = """\
{version} is written and lies in dist/{version}/. What is left:
  git diff                                        # version, changelog, {frozen}
  make test && make wheel-test && make images-test
  git add {frozen} && git commit -am "{version}" && git tag v{version}
  uv publish dist/{version}/*                     # the package index
  push images of the tag, and the tag itself      # docs/cluster.md
  set version = "NEXT.dev0" in pyproject.toml, write "## NEXT (unreleased)" into CHANGELOG.md, and commit that
{back}"""
BACK = "to take it back: git checkout -- . && git clean -f {frozen}"


class CannotRelease(Exception):
    """The tree, or the version, is not fit for it."""


def main() -> int:
    """0: written and built; 2: refused, in one line."""
    try:
        version, *_ = sys.argv[1:] or [""]
        frozen = release(ROOT, version, datetime.datetime.now(datetime.UTC).date(), record()).relative_to(ROOT)
    except CannotRelease as error:
        print(f"make release: {error}", file=sys.stderr)
        return 2
    back, built = BACK.format(frozen=frozen), ROOT / "dist" / version
    shutil.rmtree(built, ignore_errors=True)
    if subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", built], cwd=ROOT, check=False).returncode:
        print(f"make release: {version} is written and could not be built; {back}", file=sys.stderr)
        return 2
    print(STEPS.format(version=version, frozen=frozen, back=back))
    return 0


def release(root: Path, version: str, today: datetime.date, frozen: JsonDict) -> Path:
    """Writes version, changelog and what is frozen into the tree; where the latter
    stands. Raises CannotRelease."""
    project, changelog = root / "pyproject.toml", root / "CHANGELOG.md"
    before, heading = project.read_text(), f"## {version.removesuffix('.0')} (unreleased)"
    (own,) = OWN_VERSION.findall(before)
    if not FINAL.fullmatch(version):
        raise CannotRelease(f"VERSION={version}: three numbers, such as {own.partition('.dev')[0]}")
    if not own.startswith(f"{version}.dev"):
        raise CannotRelease(f"pyproject.toml prepares {own}, not {version}")
    if heading not in changelog.read_text():
        raise CannotRelease(f"CHANGELOG.md has no line {heading!r}")
    if _git(root, "status", "--porcelain"):
        raise CannotRelease("the tree has changes that are not committed")
    path = root / "claw/show" / RELEASES.name / f"{version}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**frozen, "package": version}, indent=1) + "\n")
    project.write_text(OWN_VERSION.sub(f'version = "{version}"', before, count=1))
    changelog.write_text(changelog.read_text().replace(heading, f"## {version} ({today})", 1))
    return path


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
