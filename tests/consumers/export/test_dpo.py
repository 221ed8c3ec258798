"""`claw export --format dpo`, as typed, on a real broker: the same bytes again, and what reads them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from claw_r1.datapool.feedback import FeedbackSubject, Remark, Signature, feedback_events
from claw_r1.eventlog.settings import LogSettings
from tests.claw.data.test_export import claw
from tests.consumers import published
from tests.consumers.export.test_pairs import talk, vote

TRL = os.environ.get("CLAW_TRL_PYTHON")
"""A Python that has trl and datasets; they are in no lock of ours, since their pins are not ours."""


@pytest.fixture
def judged(log_settings: LogSettings) -> LogSettings:
    """A group of two conversations that part at their second answer, a preference between them, an edit and a tie."""
    by = Signature(who="ada", producer="test", at_us=1, act_id="edit")
    sides = [FeedbackSubject("g", name) for name in "ab"]
    published.say(
        log_settings,
        *talk("a", ("hi", "yes"), ("go", "good")),
        *talk("b", ("hi", "yes"), ("go", "bad")),
        vote(*sides),
        vote(*sides, "ben", "tie", name="style"),
        *feedback_events(FeedbackSubject("g", "b", "b1"), Remark(edit="better"), by),
    )
    return log_settings


@pytest.mark.kafka
def test_pairs_are_the_same_bytes_again(judged: LogSettings, tmp_path: Path) -> None:
    """Twice, and from the manifest when more was said since."""
    first, second, again, style = (str(tmp_path / name) for name in ("first", "second", "again", "style"))
    for out in (first, second):
        done = claw(judged, tmp_path / "home", "export", "--format", "dpo", "--out", out, "--json")
        assert done.returncode == 0, done.stderr
        manifest = json.loads(done.stdout)["manifest"]
    assert (manifest["counts"]["pairs"], manifest["pairs"]["sources"]) == (2, ["preferences", "edits"])
    published.say(judged, vote(FeedbackSubject("g", "b"), FeedbackSubject("g", "a"), at_us=9))
    assert claw(judged, tmp_path / "home", "export", "--manifest", first, "--out", again).returncode == 0
    for file in Path(first).iterdir():
        assert file.read_bytes() == (Path(second) / file.name).read_bytes() == (Path(again) / file.name).read_bytes()
    rows = pq.read_table(Path(first) / "pairs.parquet").to_pylist()
    assert [(row["source"], row["chosen"][0]["content"], row["rejected"][0]["content"]) for row in rows] == [
        ("preferences", "good", "bad"),
        ("edits", "better", "bad"),
    ]
    done = claw(judged, tmp_path / "home", "export", "--format", "dpo", "--preference", "style", "--pairs", "preferences", "--out", style, "--json")  # fmt: skip
    assert json.loads(done.stdout)["manifest"]["left_out"] == {"pair: tie": 1}


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--format", "csv"], "--format is steps or dpo"),
        (["--margin", "1"], "are of --format dpo"),
        (["--format", "dpo", "--margin", "1"], "--pairs rewards"),
        (["--format", "dpo", "--pairs", "votes"], "--pairs"),
        (["--format", "dpo", "--manifest", "x"], "not both"),
    ],
)
def test_contradictions_are_refused_in_one_line(
    log_settings: LogSettings, tmp_path: Path, options: list[str], words: str
) -> None:
    """Before anything is read; exit code 2."""
    done = claw(log_settings, tmp_path / "home", "export", "--out", str(tmp_path / "out"), *options)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert words in done.stderr


@pytest.mark.kafka
@pytest.mark.skipif(TRL is None, reason="CLAW_TRL_PYTHON names no Python with trl: see docs/export.md")
def test_datasets_loads_pairs_and_trl_takes_a_step_on_them(judged: LogSettings, tmp_path: Path) -> None:
    """In an environment of its own; the loss is a number and the weights move."""
    from tests.rollout.tiny_model import make_tiny_model

    make_tiny_model(tmp_path / "model")
    claw(judged, tmp_path / "home", "export", "--format", "dpo", "--out", str(tmp_path / "out"))
    script, pairs = Path(__file__).with_name("dpo_step.py"), tmp_path / "out" / "pairs.parquet"
    done = subprocess.run(
        [TRL or sys.executable, str(script), str(pairs), str(tmp_path / "model"), str(tmp_path / "trained")],
        capture_output=True, text=True, timeout=500, check=False, env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["rows"], result["changed"]) == (2, True)
    assert 0 < result["loss"] < 10
