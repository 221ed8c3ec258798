"""`claw rebuild`: what its words mean as offsets, and that it refuses in one line."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pytest

from claw_r1.claw.answers import emit
from claw_r1.claw.cli import REFUSALS
from claw_r1.claw.data.rebuild import run_rebuild, vector
from claw_r1.claw.data.settings import RebuildSettings
from claw_r1.eventlog.kafka.admin import as_on_broker, delete_records, end_offsets
from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS, REWARDS
from tests.claw.events import captured

pytestmark = pytest.mark.kafka


@pytest.fixture
def log(log_settings: LogSettings, monkeypatch: pytest.MonkeyPatch) -> LogSettings:
    """A log with three facts, found by the command as a person's would be."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", log_settings.bootstrap_servers)
    producer = EventProducer(log_settings)
    for number in range(3):
        producer.publish_now(CALLS, group_key("g"), captured(f"c{number}"))
    producer.close()
    return log_settings


def test_it_says_what_it_made_as_json(log: LogSettings, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Manifest with offsets and fold version, counts; the manifest's file is a target again."""
    path = tmp_path / "manifest.json"
    assert emit(run_rebuild(RebuildSettings(prefix=log.prefix, manifest=path)), as_json=True) == 0
    answer = orjson.loads(capsys.readouterr().out)
    assert answer["manifest"] == orjson.loads(path.read_bytes())
    assert answer["manifest"]["generation"] == 2
    assert answer["facts"] == {"folded": 3}
    ends = end_offsets(log, [CALLS, REWARDS])
    assert vector(log, str(path)) == ends
    assert emit(run_rebuild(RebuildSettings(prefix=log.prefix, to=str(path))), as_json=False) == 0
    assert "CLAW_LOG_GENERATION=2" in capsys.readouterr().out


def test_a_time_is_resolved_to_offsets_before_anything_else(log: LogSettings) -> None:
    """Before all facts: nothing; after all: the ends."""
    now = datetime.now(UTC)
    ends = end_offsets(log, [CALLS, REWARDS])
    assert set(vector(log, (now - timedelta(days=1)).isoformat()).values()) == {0}
    assert vector(log, (now + timedelta(days=1)).isoformat()) == ends == vector(log, "end")


def test_it_takes_partitions_and_replicas_from_the_broker(log: LogSettings) -> None:
    """A setting that disagrees would put groups into partitions where nobody looks."""
    assert as_on_broker(log.model_copy(update={"partitions": 32})).partitions == log.partitions


def test_it_refuses_in_one_line(log: LogSettings, tmp_path: Path) -> None:
    """Words without meaning, the generation in use, and facts that are gone."""
    (tmp_path / "no.json").write_text("[1]")
    for asked, line in (
        (RebuildSettings(prefix=log.prefix, to="yesterday"), "--to takes"),
        (RebuildSettings(prefix=log.prefix, to=str(tmp_path / "no.json")), "no offsets"),
        (RebuildSettings(prefix=log.prefix, generation=1), "is in use"),
        (RebuildSettings(prefix="nothing-here"), "nothing-here.calls is not on the broker"),
    ):
        with pytest.raises(REFUSALS, match=line):
            emit(run_rebuild(asked), as_json=True)
    (place,) = [place for place, end in end_offsets(log, [CALLS]).items() if end]
    delete_records(log, {place: 2})
    with pytest.raises(REFUSALS, match=rf"retention cut the facts.* {place[0]}\[{place[1]}\] 0\.\.2"):
        emit(run_rebuild(RebuildSettings(prefix=log.prefix)), as_json=True)
