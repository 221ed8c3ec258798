"""docs/own-producer.md as it stands, against a real broker: a stranger's reward, and the trap that the page names."""

import os
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from claw_r1.claw.answers import emit
from claw_r1.claw.data.dlq import run_dlq
from claw_r1.claw.data.settings import LetterQuery
from claw_r1.consumers.export.folded_history import FoldedHistory, fold_partition
from claw_r1.consumers.export.offsets import resolve
from claw_r1.datapool.fold.project import project
from claw_r1.datapool.fold.validation import check_place, usable
from claw_r1.eventlog.kafka.reader import LogReader
from claw_r1.eventlog.partitioner import partition_of
from claw_r1.eventlog.records import Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.events import RewardAssigned, TrajectoryRecord
from claw_r1.schemas.topics import REWARDS
from claw_r1.streams.partition.state import PartitionState
from tests.consumers import published

pytestmark = pytest.mark.kafka
ROOT = Path(__file__).parents[2]
LINE = '"partitioner": "murmur2_random"'


def code() -> str:
    """The program of the page."""
    found = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "own-producer.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def run(program: str, settings: LogSettings, folder: Path, *arguments: str) -> str:
    """What the program printed, saved as the page says and run beside the schemas alone, with nothing of ours to import."""
    (folder / "schemas").mkdir(exist_ok=True)
    if not (folder / "schemas" / "avro").exists():
        (folder / "schemas" / "avro").symlink_to(ROOT / "schemas" / "avro")
    (folder / "reward.py").write_text(program.replace("claw.rewards", f"{settings.prefix}.rewards"))
    done = subprocess.run(
        [sys.executable, "reward.py", *arguments],
        cwd=folder,
        env={**os.environ, "KAFKA_BOOTSTRAP_SERVERS": settings.bootstrap_servers, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_log_that_is_away_is_one_line(tmp_path: Path) -> None:
    """After half a minute (here one second), not after five."""
    patience = '"message.timeout.ms": 30_000'
    assert patience in code()
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "avro").symlink_to(ROOT / "schemas" / "avro")
    (tmp_path / "reward.py").write_text(code().replace(patience, '"message.timeout.ms": 1000'))
    done = subprocess.run(
        [sys.executable, "reward.py", "g", "t", "1"],
        cwd=tmp_path,
        env={**os.environ, "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1", "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert any(line.startswith("not stored: ") for line in done.stderr.splitlines())  # beside what librdkafka says


def rewards(settings: LogSettings) -> list[Record]:
    with LogReader(settings, [REWARDS]) as reader:
        return list(reader.read_to_end())


def return_of(settings: LogSettings, group: str) -> float | None:
    """Of the group's one trajectory, after all facts of the group's partition."""
    partition = partition_of(group.encode(), settings.partitions)
    ranges = resolve(settings, "beginning", "end").of_partition(partition)
    folded = FoldedHistory()
    fold_partition(settings, ranges, settings.partitions, lambda _: None, folded)
    (record,) = (one for one in project(folded.groups[group]).values() if isinstance(one, TrajectoryRecord))
    return record.return_total


def misled() -> str:
    """A group that librdkafka's default partitioner (CRC32 of the key) puts elsewhere than murmur2, of two partitions."""
    names = (f"group-{n}" for n in range(100))
    return next(name for name in names if zlib.crc32(name.encode()) % 2 != partition_of(name.encode(), 2))


def test_the_page_needs_nothing_of_ours() -> None:
    """Its program imports the standard library, a Kafka client and an Avro writer."""
    imported = re.findall(r"^(?:import|from) ([\w, ]+)", code(), re.MULTILINE)
    names = {name.strip() for line in imported for name in line.partition(" import ")[0].split(",")}
    assert {name for name in names if name not in sys.stdlib_module_names} == {"confluent_kafka", "fastavro"}


def test_a_reward_written_as_the_page_says_counts(log_settings: LogSettings, tmp_path: Path) -> None:
    """It lies in its group's partition, is a fact as every other, and adds up with the outcome."""
    group = misled()
    published.say(log_settings, *published.group(group, [1.0], calls=1))
    said = run(code(), log_settings, tmp_path, group, f"{group}-0", "0.5")
    (record,) = rewards(log_settings)
    assert said == f"{record.topic} {record.partition}@{record.offset}\n"
    fact = usable(record.event())
    check_place(fact, record.key, record.partition, log_settings.partitions)
    assert isinstance(fact, RewardAssigned)
    assert (fact.source, fact.name, fact.value, fact.revision) == ("my-scorer", "style", 0.5, 0)
    assert return_of(log_settings, group) == 1.5


def test_librdkafkas_own_partitioner_makes_a_dead_letter_that_redrive_mends(
    log_settings: LogSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the line the reward lies elsewhere and counts for nothing, is told as wrong_partition, and comes home."""
    group = misled()
    published.say(log_settings, *published.group(group, [1.0], calls=1))
    assert LINE in code()
    run(code().replace(LINE, ""), log_settings, tmp_path, group, f"{group}-0", "0.5")
    (record,) = rewards(log_settings)
    assert record.partition != partition_of(group.encode(), log_settings.partitions)
    state = PartitionState(record.partition, log_settings.partitions)
    assert state.apply(record) == "poison"
    (letter,) = (item for item in state.take_batch(0) if item.topic.name == "dead-letters")
    assert dict(letter.headers)["claw_reason"] == b"wrong_partition"
    assert return_of(log_settings, group) == 1.0

    published.publish(log_settings, [letter])
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", log_settings.bootstrap_servers)
    asked = LetterQuery(every=True, reason="wrong_partition")
    assert emit(run_dlq("redrive", asked, prefix=log_settings.prefix), as_json=True) == 0
    assert return_of(log_settings, group) == 1.5
