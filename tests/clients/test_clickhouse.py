"""`make clients`: ClickHouse itself (chdb, its engine in a process) reads our records by the statements of docs/analytics.md.

chdb cannot have tables on Kafka, so the records of a topic come as files, in AvroConfluent as they stand there, and beside
them the header by which the statements tell them apart. All else is the page's.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from claw_r1.claw.home import PROJECT
from claw_r1.claw.local.ports import free_ports
from claw_r1.eventlog.kafka.admin import end_offsets
from claw_r1.eventlog.settings import LogSettings
from claw_r1.runtime.processes.child import module_argv
from claw_r1.schemas.arrays import unpack_floats, unpack_ids
from claw_r1.schemas.events import CallCaptured, GroupRecord, StepRecord, TrajectoryRecord
from claw_r1.schemas.topics import FACTS, TOPICS
from claw_r1.streams.rebuild import rebuild
from tests import children, facts
from tests.streams.pool import decoded, facts_in_log, load, outgoing, publish, records

HOW = os.environ.get("CLAW_CLIENTS", "")
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.process,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not HOW, reason="installs ClickHouse from its registry: make clients"),
]
CHDB = "chdb==4.4.0"
Rows = list[dict[str, Any]]  # JSON
ASK = """
import json, sys
from chdb.session import Session
session = Session()
for line in sys.stdin:
    statement = json.loads(line)
    told = str(session.query(statement, "JSONEachRow"))
    if statement.startswith("SELECT"):
        print(json.dumps([json.loads(row) for row in told.splitlines() if row]))
"""
KAFKA_TABLE = re.compile(
    r"CREATE TABLE (\w+) \((.*)\)\s+ENGINE = Kafka\s.*kafka_topic_list = 'claw\.([\w.]+)'", re.DOTALL
)
HEADERS = "`_headers.name` Array(String), `_headers.value` Array(String)"


@pytest.fixture(scope="module")
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with ClickHouse's engine: `CLAW_CLICKHOUSE`, or one that is made here."""
    if given := os.environ.get("CLAW_CLICKHOUSE"):
        return given
    folder = tmp_path_factory.mktemp("chdb")
    uv = PROJECT / ".tools" / "uv" / "bin" / "uv"
    subprocess.run([uv, "venv", "--python", sys.executable, folder], check=True, timeout=60)
    subprocess.run([uv, "pip", "install", "--python", folder / "bin" / "python", CHDB], check=True, timeout=600)
    return str(folder / "bin" / "python")


@pytest.fixture
def log(log_settings: LogSettings) -> LogSettings:
    """Groups with their pool; a slot that was revised, one that was emptied, and one of a kept verdict."""
    events = load(groups=3, members=2)
    group, trajectory = "g0", "t0"
    events += [
        facts.reward(group, trajectory, 0.1, name="revised"),
        facts.reward(group, trajectory, 0.9, name="revised", revision=2),
        facts.reward(group, trajectory, 0.3, name="emptied"),
        facts.reward(group, trajectory, None, name="emptied", revision=1),
        facts.reward(group, trajectory, 0.2, name="judged", verdict=facts.verdict()),
    ]
    publish(log_settings, map(outgoing, events))
    rebuild(log_settings, end_offsets(log_settings, FACTS), lambda _done, _total: None)
    return log_settings


def statements(log: LogSettings, registry: str, folder: Path) -> Iterator[str]:
    """Those of the page; before each question the tables of topics are filled."""
    page = (PROJECT / "docs" / "analytics.md").read_text()
    section = page.partition("## ClickHouse\n")[2].partition("\n## ")[0]
    empty: list[str] = []
    for statement in map(str.strip, "".join(re.findall(r"```sql\n(.*?)```", section, re.DOTALL)).split(";")):
        if table := KAFKA_TABLE.match(statement):
            name, columns, topic = table.groups()
            yield f"CREATE TABLE {name} ({columns}, {HEADERS}) ENGINE = Memory"
            empty += filled(name, columns, by_type(log, topic, folder), registry)
        elif statement.startswith("SELECT"):
            yield from empty
            empty.clear()
            yield statement.replace("SETTINGS stream_like_engine_allow_direct_select = 1", "")
        elif statement:
            yield statement


def by_type(log: LogSettings, topic: str, folder: Path) -> dict[str, Path]:
    """The records of a topic by their type, each kind in a file as they stand on the topic, tombstones apart."""
    values: dict[str, bytes] = {}
    for record in records(log, next(each for each in TOPICS if each.name == topic)):
        kind = dict(record.headers)["ce_type"].decode()
        values[kind] = values.get(kind, b"") + (record.value or b"")
    paths = {kind: folder / f"{topic}-{kind}" for kind in values}
    for kind, path in paths.items():
        path.write_bytes(values[kind])
    return paths


def filled(table: str, columns: str, paths: dict[str, Path], registry: str) -> Iterator[str]:
    settings = f"format_avro_schema_registry_url = '{registry}', input_format_avro_allow_missing_fields = 1"
    for kind, path in paths.items():
        source = f"file('{path}', AvroConfluent, '{columns}')"
        yield f"INSERT INTO {table} SELECT *, ['ce_type'], ['{kind}'] FROM {source} SETTINGS {settings}"


def test_the_statements_of_the_page_give_calls_groups_and_rewards(
    clickhouse: str, log: LogSettings, tmp_path: Path
) -> None:
    """Ids and log-probabilities unpacked, groups as the pool has them, of each slot the value that the pool has."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    serve = module_argv("claw_r1.claw.cli", "registry", "--port", str(port), "--prefix", log.prefix)
    with children.serving(serve, f"{url}/subjects", tmp_path / "registry.log"):
        told = "\n".join(map(json.dumps, statements(log, url, tmp_path)))
        asked = subprocess.run(
            [clickhouse, "-c", ASK], input=told, capture_output=True, text=True, timeout=600, check=False, cwd=tmp_path
        )
    assert asked.returncode == 0, asked.stderr[-3000:]
    calls, groups, rewards = (json.loads(line) for line in asked.stdout.splitlines())
    captured = [event for event, _ in facts_in_log(log) if isinstance(event, CallCaptured)]
    assert {row["call_id"]: row["ids"] for row in calls} == {
        each.call_id: unpack_ids(each.response_ids or b"") for each in captured
    }
    assert sum(map(len, (row["logprobs"] for row in calls))) == sum(
        len(unpack_floats(each.response_logprobs or b"")) for each in captured
    )
    pool = decoded(log)
    assert {(row["group_id"], row["ready"], row["reward_mean"]) for row in groups} == {
        (each.group_id, each.ready, each.reward_mean) for each in pool if isinstance(each, GroupRecord)
    }
    assert slots_of(rewards) == slots_in(pool)


def slots_of(rows: Rows) -> dict[tuple[Any, ...], float]:
    place = ("group_id", "trajectory_id", "call_id", "step_index", "source", "name")
    return {tuple(row[name] for name in place): row["value"] for row in rows}


def slots_in(pool: list[Any]) -> dict[tuple[Any, ...], float]:
    """The slots that hold a value, but for completions', which are no rewards of their own."""
    return {
        (row.group_id, row.trajectory_id, slot.call_id, slot.step_index, slot.source, slot.name): slot.value
        for row in pool
        if isinstance(row, StepRecord | TrajectoryRecord)
        for slot in row.rewards
        if slot.value is not None and slot.name != "completion"
        if isinstance(row, TrajectoryRecord) or slot.step_index is None
    }
