"""`claw export`, as typed, against a real broker."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from claw_r1.eventlog.kafka.admin import delete_records
from claw_r1.eventlog.settings import LogSettings
from claw_r1.runtime.processes.child import start
from tests import children
from tests.consumers import published
from tests.patience import until

pytestmark = pytest.mark.kafka


CLAW = [sys.executable, "-m", "claw_r1.claw.cli"]


def environment(settings: LogSettings, home: Path) -> dict[str, str]:
    return {
        **os.environ,
        "CLAW_HOME": str(home),
        "KAFKA_BOOTSTRAP_SERVERS": settings.bootstrap_servers,
        "CLAW_LOG_PREFIX": settings.prefix,
    }


def claw(settings: LogSettings, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = environment(settings, home)
    return subprocess.run([*CLAW, *arguments], capture_output=True, text=True, timeout=120, check=False, env=env)


@contextmanager
def following(settings: LogSettings, home: Path, out: Path) -> Iterator[None]:
    """`claw export --follow` until the end of the block."""
    command = [*CLAW, "export", "--follow", "--every", "1s", "--out", str(out)]
    process = start(command, env=environment(settings, home))
    try:
        yield
    finally:
        assert children.end(process, 30.0) == 0


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
    kept = {file.read_text(): file.parent for file in (tmp_path / "home" / "datasets").glob("*/path")}
    assert kept.keys() == {f"{first}\n{again}\n", f"{more}\n"}
    assert (kept[f"{first}\n{again}\n"] / "manifest.json").read_bytes() == (Path(first) / "manifest.json").read_bytes()


def paths(home: Path) -> list[str]:
    """The folders that somebody who erases finds."""
    return sorted(line for file in (home / "datasets").glob("*/path") for line in file.read_text().splitlines())


def test_a_dataset_that_differs_from_its_manifest_is_not_forgotten(log_settings: LogSettings, tmp_path: Path) -> None:
    """Its words are on the disk like any other's."""
    published.say(log_settings, *published.group("a", [1.0, 0.0]))
    home, first, other = tmp_path / "home", tmp_path / "first", tmp_path / "other"
    assert claw(log_settings, home, "export", "--out", str(first)).returncode == 0
    manifest = json.loads((first / "manifest.json").read_bytes())
    manifest["files"]["steps.parquet"]["sha256"] = "0" * 64
    (tmp_path / "changed.json").write_text(json.dumps(manifest))
    done = claw(log_settings, home, "export", "--manifest", str(tmp_path / "changed.json"), "--out", str(other))
    assert done.returncode == 1
    assert "DIFFERS from the manifest: steps.parquet" in done.stdout
    assert paths(home) == [str(first), str(other)]


def is_kept(manifest: Path, home: Path) -> bool:
    return manifest.exists() and paths(home) != []


def test_a_dataset_that_grows_is_kept_once(log_settings: LogSettings, tmp_path: Path) -> None:
    """Whatever parts it has, and however often it was started."""
    home, out = tmp_path / "home", tmp_path / "live"
    for number, name in enumerate("ab", 1):
        published.say(log_settings, *published.group(name, [1.0, 0.0]))
        with following(log_settings, home, out):
            until(partial(is_kept, out / "parts" / f"{number:06}" / "manifest.json", home))
    assert paths(home) == [str(out)]


def test_what_retention_cut_is_said_in_one_line(log_settings: LogSettings, tmp_path: Path) -> None:
    """A history that is no longer whole is refused with the missing range, exit code 2."""
    (place, *_) = published.say(log_settings, *published.group("a", [1.0, 0.0]))
    delete_records(log_settings, {(place.topic, place.partition): 3})
    done = claw(log_settings, tmp_path / "home", "export", "--out", str(tmp_path / "out"))
    assert done.returncode == 2
    assert f"{place.topic} partition {place.partition} no longer holds [0, 3)" in done.stderr
    assert done.stderr.count("\n") == 1
