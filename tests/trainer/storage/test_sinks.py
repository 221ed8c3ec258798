"""Curves that go to other programs: what arrives, and what a library that hangs, refuses or dies costs."""

import importlib.util
import json
import sqlite3
import struct
import threading
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from claw_r1.trainer.config import extras
from claw_r1.trainer.errors import SettingsInvalid
from claw_r1.trainer.storage import sinks
from claw_r1.trainer.storage.reports import Reports
from tests.patience import until
from tests.trainer.incarnation import settings
from tests.trainer.journal.test_history import trained

pytestmark = pytest.mark.process
LIBRARY = """
import json, os, sys, time
from pathlib import Path
class Settings:
    def __init__(self, **_): pass
class Run:
    def __init__(self, about): self.out = open(Path(about["dir"]) / "points", "a")
    def log(self, metrics, step):
        {log}
        self.out.write(json.dumps([step, metrics]) + "\\n"); self.out.flush()
    def finish(self):
        {finish}
        self.out.write("finished\\n"); self.out.flush()
def init(**about):
    {init}
    (Path(about["dir"]) / "about").write_text(json.dumps({{k: v for k, v in about.items() if k != "settings"}}))
    return Run(about)
"""
NOISE = "print('* not for stdout')"


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Makes a `wandb` that does this at each of its verbs."""

    def make(**verbs: str) -> None:
        folder = tmp_path / "libraries"
        folder.mkdir()
        body = LIBRARY.format(**{"init": "pass", "log": "pass", "finish": "pass", **verbs})
        (folder / "wandb.py").write_text(body)
        monkeypatch.setenv("PYTHONPATH", str(folder))

    return make


def reports_of(tmp_path, **changes) -> Reports:
    chosen = settings(tmp_path, tmp_path / "model", **{"sinks": ("wandb",), **changes})
    return Reports(tmp_path, [], sinks.opened(chosen), board=False)


def test_every_point_arrives_under_its_batch(tmp_path, library, capfd):
    """In order, with the version that the batch made; what the library prints comes to no stdout of ours."""
    library(init=NOISE, log=NOISE)
    reports = reports_of(tmp_path, sinks_project="mine")
    for sequence in (0, 2, 3):
        reports.write(trained(sequence))
    reports.close()
    *points, last = (tmp_path / "points").read_text().splitlines()
    assert last == "finished"
    event = trained(2)
    expected = {f"train/{name}": value for name, value in event.metrics.items()} | {"version": event.version}
    assert [json.loads(point)[0] for point in points] == [0, 2, 3]
    assert json.loads(points[1])[1] == expected
    about = json.loads((tmp_path / "about").read_text())
    assert (about["mode"], about["project"], about["id"]) == ("offline", "mine", "run")
    assert about["config"]["run_id"] == "run"
    assert not (tmp_path / "tensorboard").exists()
    assert "not for stdout" not in capfd.readouterr().out


def test_a_sink_without_room_for_its_files_ends_no_run(tmp_path):
    """Its points are not written, which is said; nothing is started for it."""
    (tmp_path / "sinks").touch()
    with capture_logs() as logs:
        assert sinks.opened(settings(tmp_path, tmp_path / "model", sinks=("wandb",))) == []
    assert [(entry["event"], entry["name"]) for entry in logs] == [("not_written", "points for wandb")]


def test_a_sink_that_hangs_holds_nothing_up(tmp_path, library):
    """Thousands of batches are written meanwhile; at the end it is killed, and all of that is one line."""
    library(log="time.sleep(1e6)")
    reports = reports_of(tmp_path)
    (sink,) = reports._sinks
    until((tmp_path / "points").exists)
    with capture_logs() as logs:
        began_s = time.monotonic()
        for sequence in range(3 * sinks.POINTS_MAX):
            sink.write(trained(sequence))
        took_s = time.monotonic() - began_s
        reports.close(0.1)
        reports.close(0.1)
    assert took_s < 5
    assert [entry["event"] for entry in logs] == ["sink_behind"]
    assert sink._process.returncode is not None
    assert not [each for each in threading.enumerate() if each.name == "sink wandb" and _alive(each)]


def _alive(thread: threading.Thread) -> bool:
    thread.join(10)
    return thread.is_alive()


def test_a_sink_that_does_not_finish_is_given_up(tmp_path, library):
    """All arrived; its end does not come: one line."""
    library(finish="time.sleep(1e6)")
    reports = reports_of(tmp_path)
    reports.write(trained(0))
    until(lambda: (tmp_path / "points").exists() and (tmp_path / "points").read_text())
    with capture_logs() as logs:
        reports.close(0.1)
    assert [entry["event"] for entry in logs] == ["sink_not_finished"]


@pytest.mark.parametrize(
    ("verb", "does", "why"),
    [
        ("init", "raise ValueError('no key:\\n log in')", "ValueError: no key: log in"),
        ("log", "raise RuntimeError('full')", "RuntimeError: full"),
        ("log", "os._exit(3)", "it ended without a word"),
    ],
)
def test_a_sink_that_refuses_is_one_line(tmp_path, library, verb, does, why):
    """The run goes on, whatever comes after it; the line says why, and where its log is."""
    library(**{verb: does})
    reports = reports_of(tmp_path)
    (sink,) = reports._sinks
    with capture_logs() as logs:
        reports.write(trained(0))
        sink._process.wait(30)
        for sequence in range(1, 20):
            reports.write(trained(sequence))
        reports.close()
    told = [entry for entry in logs if entry["event"].startswith("sink")]
    assert [(entry["event"], entry["why"]) for entry in told] == [("sink_refused", why)]
    assert Path(told[0]["log"]).exists()
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 20


def test_a_library_that_is_not_there_is_said_before_anything_begins(tmp_path):
    """By name, with what to install."""
    if importlib.util.find_spec("wandb") is not None:
        pytest.skip("wandb is installed")
    with pytest.raises(SettingsInvalid, match="sinks: wandb is not installed here: pip install wandb"):
        extras.check(settings(tmp_path, tmp_path / "model", sinks=("tensorboard", "wandb")))
    extras.check(settings(tmp_path, tmp_path / "model"))


def records_of(data: bytes):
    """The records of a .wandb file: a header of 7 bytes, then LevelDB's log: blocks of 32 KiB of (crc, length, kind, bytes)."""
    at, whole = 7, b""
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole one, or the last part
            yield whole
            whole = b""


def test_the_real_wandb_writes_offline(tmp_path):
    """Two incarnations of one run: each has its points, in the format that `wandb sync` reads."""
    pytest.importorskip("wandb")
    from wandb.proto import wandb_internal_pb2

    points = []
    for sequences in ((0, 1), (2,)):
        reports = reports_of(tmp_path)
        for sequence in sequences:
            reports.write(trained(sequence))
        reports.close()
    for path in sorted(tmp_path.glob("wandb/offline-run-*/*.wandb")):
        for data in records_of(path.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "history":
                items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
                points.append((record.history.step.num, json.loads(items["train/reward"])))
    assert points == [(n, trained(n).metrics["reward"]) for n in range(3)]


def test_the_real_trackio_writes_offline(tmp_path, monkeypatch):
    """Two incarnations go on with one run, in a file below the run's directory, whatever server a variable names."""
    pytest.importorskip("trackio")
    monkeypatch.setenv("TRACKIO_SPACE_ID", "nobody/nowhere")
    monkeypatch.delenv("TRACKIO_DIR", raising=False)
    for sequences in ((0, 1), (2,)):
        reports = reports_of(tmp_path, sinks=("trackio",))
        for sequence in sequences:
            reports.write(trained(sequence))
        reports.close()
    (path,) = tmp_path.glob("trackio/*.db")
    with sqlite3.connect(path) as database:
        rows = database.execute("select run_name, step, metrics from metrics order by step").fetchall()
    assert [(name, step) for name, step, _ in rows] == [("run", 0), ("run", 1), ("run", 2)]
    assert [json.loads(metrics)["train/reward"] for *_, metrics in rows] == [
        trained(n).metrics["reward"] for n in range(3)
    ]
