"""`claw export`, as typed, against a real broker."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from claw_r1.eventlog.kafka.admin import delete_records
from claw_r1.eventlog.settings import LogSettings
from tests.consumers import published

pytestmark = pytest.mark.kafka


def claw(settings: LogSettings, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {
        **os.environ,
        "CLAW_HOME": str(home),
        "KAFKA_BOOTSTRAP_SERVERS": settings.bootstrap_servers,
        "CLAW_LOG_PREFIX": settings.prefix,
    }
    command = [sys.executable, "-m", "claw_r1.claw.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=env)


def test_a_manifest_reproduces_a_dataset_bit_for_bit(log_settings: LogSettings, tmp_path: Path) -> None:
    """Export, more facts, export again from the manifest: equal files, the manifest too; a kept copy says where each is."""
    published.say(log_settings, *published.group("a", [1.0, 0.0]), *published.group("b", [0.0, 0.0]))
    spec = tmp_path / "spec.yaml"
    spec.write_text("group_size: 2\n")
    first, again, more = (str(tmp_path / name) for name in ("first", "again", "more"))
    done = claw(log_settings, tmp_path / "home", "export", "--spec", str(spec), "--out", first, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["manifest"]["counts"]["steps"] == 8
    published.say(log_settings, *published.group("c", [1.0, 0.0]))
    done = claw(log_settings, tmp_path / "home", "export", "--manifest", first, "--out", again)
    assert done.returncode == 0, done.stderr
    for file in Path(first).iterdir():
        assert file.read_bytes() == (Path(again) / file.name).read_bytes()
    assert claw(log_settings, tmp_path / "home", "export", "--out", more).returncode == 0
    kept = {file.read_text().strip(): file.parent for file in (tmp_path / "home" / "datasets").glob("*/path")}
    assert kept.keys() == {again, more}
    assert (kept[again] / "manifest.json").read_bytes() == (Path(first) / "manifest.json").read_bytes()


def test_what_retention_cut_is_said_in_one_line(log_settings: LogSettings, tmp_path: Path) -> None:
    """A history that is no longer whole is refused with the missing range, exit code 2."""
    (place, *_) = published.say(log_settings, *published.group("a", [1.0, 0.0]))
    delete_records(log_settings, {(place.topic, place.partition): 3})
    done = claw(log_settings, tmp_path / "home", "export", "--out", str(tmp_path / "out"))
    assert done.returncode == 2
    assert f"{place.topic} partition {place.partition} no longer holds [0, 3)" in done.stderr
    assert done.stderr.count("\n") == 1
