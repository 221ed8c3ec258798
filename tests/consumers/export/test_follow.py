"""A dataset that grows: each group in one part, whole, whatever kills the process in between. On a real broker."""

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from claw_r1.consumers.export.errors import CannotExport
from claw_r1.consumers.export.export import export, reproduce
from claw_r1.consumers.export.follow import GrowingDataset
from claw_r1.consumers.export.manifest import load
from claw_r1.consumers.export.offsets import resolve
from claw_r1.datapool.batch.spec import BatchSpec
from tests import children, facts
from tests.consumers import published
from tests.patience import until

pytestmark = pytest.mark.kafka
SETTLED = -5.0
"""No silence at all: whatever was written before counts as quiet."""


def calls(out: Path) -> list[str]:
    return [row["call_id"] for part in sorted(out.glob("parts/*/steps.parquet")) for row in table(part)]


def table(path) -> list[dict]:
    return ds.dataset(path).to_table().to_pylist()


def by_call(rows: list[dict]) -> list[dict]:
    return sorted(rows, key=lambda row: row["call_id"])


def whole(settings, out: Path) -> None:
    """All parts as one table are what one export of everything is, each row once."""
    export(settings, resolve(settings, "beginning", "end"), None, out / "whole")
    parts = table([str(path) for path in sorted(out.glob("parts/*/steps.parquet"))])
    assert by_call(parts) == by_call(table(out / "whole" / "steps.parquet"))
    groups = Counter(row["group_id"] for part in out.glob("parts/*/groups.parquet") for row in table(part))
    assert max(groups.values()) == 1


def test_a_group_goes_out_once_and_whole(log_settings, tmp_path):
    """One whose calls lie in two parts goes out with the second; what comes for one that went out is counted, and is in no part."""
    first, second = published.group("a", [1.0, 0.0]), published.group("b", [1.0, 0.0])
    published.say(log_settings, *first, *second[:3])
    with closing(GrowingDataset(log_settings, None, tmp_path)) as growing:
        one = growing.part(SETTLED)
        assert (one.counts["groups"], set(calls(tmp_path))) == (1, {"a-0-0", "a-0-1", "a-1-0", "a-1-1"})
        assert growing.part(SETTLED) is None
        published.say(log_settings, *second[3:])
    with closing(GrowingDataset(log_settings, None, tmp_path)) as growing:
        two = growing.part(SETTLED)
        assert two.counts["groups"] == 1
        whole(log_settings, tmp_path)
        published.say(log_settings, facts.reward("a", "a-0", 0.5), *published.group("c", [1.0, 0.0]))
        assert growing.part(SETTLED).unreadable == {"after_its_part": 1}
    assert len(calls(tmp_path)) == len(set(calls(tmp_path))) == 12
    parts = [load(part) for part in sorted(tmp_path.glob("parts/*"))]
    for before, after in itertools.pairwise(parts):
        assert {place: end for place, (_, end) in before.vector.ranges.items()} == {
            place: start for place, (start, _) in after.vector.ranges.items()
        }
    with pytest.raises(CannotExport, match="parts before it"):
        reproduce(log_settings, parts[1], tmp_path / "again")


def test_a_group_goes_out_after_a_silence(log_settings, tmp_path):
    """Rewards come later than ends do."""
    published.say(log_settings, *published.group("a", [1.0, 0.0]))
    with closing(GrowingDataset(log_settings, None, tmp_path)) as growing:
        assert growing.part(3600) is None
        assert growing.part(SETTLED).counts["groups"] == 1


def test_what_the_spec_leaves_out_is_decided_once(log_settings, tmp_path):
    """With its reason, in the part in which it came to rest."""
    published.say(log_settings, *published.group("small", [1.0]), *published.group("g", [1.0, 0.0]))
    for groups in (1, None):
        with closing(GrowingDataset(log_settings, BatchSpec(group_size=2), tmp_path)) as growing:
            part = growing.part(SETTLED)
            assert (part and part.counts["groups"]) == groups
    assert sum(load(tmp_path / "parts" / "000001").left_out.values()) == 1
    with pytest.raises(CannotExport, match="another format, log or spec"):
        GrowingDataset(log_settings, None, tmp_path)


def test_a_folder_has_one_writer(log_settings, tmp_path):
    """A second process would write the same groups."""
    with (
        closing(GrowingDataset(log_settings, None, tmp_path)),
        pytest.raises(CannotExport, match="written by another process"),
    ):
        GrowingDataset(log_settings, None, tmp_path)


@pytest.mark.process
def test_killed_anywhere_each_row_is_there_once(log_settings, tmp_path):
    """The command, killed while it reads and writes, again and again; SIGTERM ends it in order."""
    dice = random.Random(1)
    command = [sys.executable, "-m", "claw_r1.claw", "export", "--follow", "--every", "1s", "--out", str(tmp_path)]
    command += ["--prefix", log_settings.prefix]
    for number in range(4):
        rows = [published.group(f"g{number}-{each}", [1.0, 0.0]) for each in range(6)]
        mixed = [event for turn in zip(*rows, strict=True) for event in turn]
        published.say(log_settings, *mixed[:40])
        (tmp_path / ".lock").unlink(missing_ok=True)  # left by the one before, and would say that this one writes
        child = children.start(
            command, stdout=(tmp_path / "said").open("ab"), stderr=subprocess.STDOUT, env=environment(log_settings)
        )
        try:
            if number < 3:
                until(lambda: (tmp_path / ".lock").exists(), "it writes")
                time.sleep(dice.uniform(0, 1.5))
                child.send_signal(signal.SIGKILL)
                child.wait(30)
            published.say(log_settings, *mixed[40:])
            if number == 3:
                until(lambda: len(set(calls(tmp_path))) == 4 * 6 * 4, "all of them", step=lambda: time.sleep(0.3))
                child.send_signal(signal.SIGTERM)
                assert child.wait(30) == 0, (tmp_path / "said").read_text()
        finally:
            children.end(child, 10.0)
    whole(log_settings, tmp_path)


def environment(settings) -> dict[str, str]:
    return {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": settings.bootstrap_servers}
