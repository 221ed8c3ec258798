"""docs/own-consumer.md as it stands: its function on a log in memory, its process on a real broker, killed and stopped."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from claw_r1.eventlog.consume import ConsumerLoop, Work
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.kafka.reader import LogReader
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.events import RewardAssigned
from claw_r1.schemas.topics import CALLS, REWARDS
from tests import children
from tests.consumers import published
from tests.docs.test_own_producer import return_of
from tests.patience import PATIENCE_S, until

ROOT = Path(__file__).parents[2]


def code() -> str:
    """The program of the page."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "own-consumer.md").read_text(), re.DOTALL)
    (program,) = blocks
    return program


def rewards(settings: LogSettings) -> list[RewardAssigned]:
    with LogReader(settings, [REWARDS]) as reader:
        events = [record.event() for record in reader.read_to_end()]
    return [event for event in events if isinstance(event, RewardAssigned)]


def committed(settings: LogSettings) -> bool:
    """Whether the judge's group is at the end of all calls."""
    log = KafkaLog(settings)
    offsets = log.committed_offsets(f"{settings.prefix}.brevity", [CALLS], range(settings.partitions))
    return {place: offset or 0 for place, offset in offsets.items()} == log.end_offsets([CALLS])


@contextmanager
def judge(settings: LogSettings, folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """The page's process."""
    (folder / "brevity.py").write_text(code())
    environment = {
        **os.environ,
        "KAFKA_BOOTSTRAP_SERVERS": settings.bootstrap_servers,
        "CLAW_LOG_PREFIX": settings.prefix,
        "PYTHONPATH": str(ROOT),
    }
    process = children.start([sys.executable, str(folder / "brevity.py")], cwd=folder, env=environment)
    try:
        yield process
    finally:
        children.end(process)


def test_the_function_of_the_page_judges_on_a_log_in_memory() -> None:
    """A completed call has one reward; other facts have none."""
    names: dict[str, object] = {}
    exec(code(), names)
    work: Work = names["work"]  # type: ignore[assignment]  # what the page defines
    log = MemoryLog(LogSettings(partitions=1))
    producer = log.producer()
    for fact in published.group("g", [1.0], calls=2):
        producer.produce(published.outgoing(fact)).result()
    loop = ConsumerLoop(log, [CALLS], "brevity", work)
    loop.step(threading.Event())
    loop.close()
    events = [record.event() for record in log.reader([REWARDS]).read_to_end()]
    judged = [event for event in events if isinstance(event, RewardAssigned) and event.source == "brevity"]
    assert [(reward.call_id, reward.value) for reward in judged] == [("g-0-0", 0.98), ("g-0-1", 0.98)]


def test_without_a_broker_it_ends_with_one_line(tmp_path: Path) -> None:
    """It names the broker that does not answer; a traceback would be of our files."""
    (tmp_path / "brevity.py").write_text(code())
    environment = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "brevity.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("brevity: ")
    assert "127.0.0.1:1" in done.stderr


@pytest.mark.kafka
def test_killed_and_started_again_each_call_is_rewarded_once(log_settings: LogSettings, tmp_path: Path) -> None:
    """After kill -9 with outputs in the log, the rewards may stand there twice, as the same events, and count once."""
    published.say(log_settings, *published.group("g", [1.0], calls=3))
    with judge(log_settings, tmp_path) as process:
        until(lambda: len(rewards(log_settings)) >= 3)
        process.kill()
    with judge(log_settings, tmp_path) as process:
        published.say(log_settings, *published.group("h", [1.0], calls=3))
        until(lambda: committed(log_settings))
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    copies = Counter(reward.envelope.event_id for reward in rewards(log_settings) if reward.source == "brevity")
    assert len(copies) == 6
    assert return_of(log_settings, "g") == return_of(log_settings, "h") == pytest.approx(1.0 + 3 * 0.98)
