"""`make release`: what is written, and what is refused before anything is."""

import datetime
import json
import shlex
import subprocess
from pathlib import Path

import pytest

from claw_r1.claw.show.upgrade import check, record
from infra.release import STEPS, CannotRelease, release

DAY = datetime.date(2027, 1, 2)
CHANGELOG = "# Changelog\n\n## 0.1 (unreleased)\n\n- all of it\n"


def git(root: Path, *words: str) -> None:
    identity = ("-c", "user.name=n", "-c", "user.email=e@example.org")
    subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository that prepares 0.1.0."""
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "0.1.0.dev0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "begun")
    return tmp_path


def test_a_version_is_written_and_is_what_an_upgrade_is_checked_from(tree: Path) -> None:
    """Version, heading with its day, and a record that `claw upgrade --check` takes."""
    frozen = release(tree, "0.1.0", DAY, record())
    assert 'version = "0.1.0"' in (tree / "pyproject.toml").read_text()
    assert "## 0.1.0 (2027-01-02)" in (tree / "CHANGELOG.md").read_text()
    assert json.loads(frozen.read_text())["package"] == "0.1.0"
    assert check(frozen).code == 0


@pytest.mark.parametrize(
    ("version", "line"),
    [("", "three numbers, such as 0.1.0"), ("0.1.0rc1", "three numbers"), ("0.2.0", r"prepares 0\.1\.0\.dev0")],
)
def test_another_version_is_refused(tree: Path, version: str, line: str) -> None:
    with pytest.raises(CannotRelease, match=line):
        release(tree, version, DAY, record())


def test_a_tree_that_is_not_ready_is_refused_and_left_alone(tree: Path) -> None:
    """Changes that nobody committed would be released unseen; a changelog without the version says nothing of it."""
    (tree / "more.py").write_text("")
    with pytest.raises(CannotRelease, match="not committed"):
        release(tree, "0.1.0", DAY, record())
    assert (tree / "CHANGELOG.md").read_text() == CHANGELOG
    (tree / "CHANGELOG.md").write_text("# Changelog\n")
    with pytest.raises(CannotRelease, match=r"no line '## 0\.1 \(unreleased\)'"):
        release(tree, "0.1.0", DAY, record())


def test_what_a_person_is_told_to_commit_is_all_that_was_written(tree: Path) -> None:
    """The record is a new file, which `git commit -a` leaves out."""
    frozen = release(tree, "0.1.0", DAY, record()).relative_to(tree)
    (told,) = [
        line.split(" && git tag")[0]
        for line in STEPS.format(version="0.1.0", frozen=frozen, back="").splitlines()
        if "git tag" in line
    ]
    for command in told.split(" && "):
        git(tree, *shlex.split(command)[1:])
    assert subprocess.run(["git", "status", "--porcelain"], cwd=tree, capture_output=True, check=True).stdout == b""
