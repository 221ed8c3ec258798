"""`claw doctor`: each finding says what would not hold, and what to do."""

import json
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from claw_r1.claw import bf16
from claw_r1.claw.answers import emit
from claw_r1.claw.show.doctor import cpu, disk, files, run_doctor
from claw_r1.claw.show.doctor_log import asked, clocks, keys, pool, replication, wire
from claw_r1.eventlog.errors import LogError
from claw_r1.eventlog.kafka.admin import TopicState, create_topics
from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import KeyRecorded, WorkerReported
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS
from tests.facts import call


def findings(prefix: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, dict[str, str]]]:
    """Exit code, and the findings by check."""
    code = emit(run_doctor(prefix=prefix), as_json=True)
    report = json.loads(capsys.readouterr().out.splitlines()[-1])  # clients log to it, too, in a test
    assert report["ok"] is (code == 0)
    return code, {finding["check"]: finding for finding in report["findings"]}


@pytest.mark.kafka
def test_a_broker_with_the_catalogue_is_sound(
    log_settings: LogSettings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is bad; that there is one replica is a note, which is right for a local stack."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", log_settings.bootstrap_servers)
    code, by_check = findings(log_settings.prefix, capsys)
    assert (code, by_check["broker"]["state"], by_check["replication"]["state"]) == (0, "ok", "note")
    assert by_check["broker"]["says"].startswith(f"{log_settings.bootstrap_servers} answers, with the brokers ")
    assert "BrokerInfo" not in by_check["broker"]["says"], "a person reads it"
    assert {"disk", "java", "gateway", "streams", "trainer", "rollout"} <= by_check.keys()
    assert [by_check[check]["state"] for check in ("wire", "pool", "keys", "clocks")] == ["ok"] * 4
    with_fact = EventProducer(log_settings)
    with_fact.publish_now(CALLS, group_key("g"), call("g", "t", "c"))
    with_fact.close()
    code, by_check = findings(log_settings.prefix, capsys)
    assert (code, by_check["pool"]["state"]) == (1, "bad")
    assert "run `claw streams`" in by_check["pool"]["says"]


@pytest.mark.kafka
def test_missing_topics_are_bad_and_name_the_command(
    broker: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A prefix without topics is no installation: exit code 1, and how to create it."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker)
    code, by_check = findings(f"t{uuid.uuid4().hex[:10]}", capsys)
    assert (code, by_check["topics"]["state"]) == (1, "bad")
    assert "claw topics create" in by_check["topics"]["says"]


@pytest.mark.kafka
def test_another_generation_lacks_its_topics(
    log_settings: LogSettings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pool of the generation in use must be there: `CLAW_LOG_GENERATION` names it."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", log_settings.bootstrap_servers)
    monkeypatch.setenv("CLAW_LOG_GENERATION", "7")
    code, by_check = findings(log_settings.prefix, capsys)
    assert (code, by_check["topics"]["state"]) == (1, "bad")
    create_topics(log_settings.model_copy(update={"generation": 7}))
    assert findings(log_settings.prefix, capsys)[0] == 0


def test_a_broker_that_does_not_answer_is_a_finding_not_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rest of the machine is still looked at; the text has one line per finding."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("CLAW_HOME", str(tmp_path / "home"))
    assert emit(run_doctor(prefix="claw"), as_json=False) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.split()[1] == "broker"] == ["bad"]
    assert any(line.split()[1] == "disk" for line in lines)


TRAPS_ON_AMX = "import os; 'ONEDNN_MAX_CPU_ISA' in os.environ or os.kill(os.getpid(), 4)"


def test_a_cpu_that_traps_on_bf16_is_bad_until_the_variable_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no set-up has tried it (a wheel), the doctor does, and says which variable to set; set, it is a note."""
    for name in bf16.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    command = [sys.executable, "-I", "-S", "-c", TRAPS_ON_AMX]
    finding = cpu(tmp_path, command)
    assert (finding.state, "set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16" in finding.says) == ("bad", True)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    finding = cpu(tmp_path, command)
    assert (finding.state, "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 keeps" in finding.says) == ("note", True)


def test_what_the_setup_found_is_not_tried_again(tmp_path: Path) -> None:
    """The doctor of an installed environment starts no child for it."""
    bf16.record(bf16.ProcessorTrial(bf16.processor(), "runs"), tmp_path)
    assert cpu(tmp_path, ["/nowhere/python"]).state == "ok"
    bf16.record(bf16.ProcessorTrial("another CPU", "runs"), tmp_path)
    assert cpu(tmp_path, ["/nowhere/python"]).state == "note", "that it is not known is said"


def state(replication: int, insync: int) -> TopicState:
    return TopicState("claw.calls", 8, replication, {}, insync, {}, {})


@pytest.mark.parametrize(
    ("replicas", "insync", "found"), [(1, 1, "note"), (2, 2, "bad"), (3, 1, "bad"), (3, 2, "ok"), (5, 3, "ok")]
)
def test_replicas_hold_what_was_acknowledged_or_it_is_bad(replicas: int, insync: int, found: str) -> None:
    """Three with two in sync hold; one is a local stack's; all else looks safer than it is, and the weak topic is named."""
    finding = replication([state(3, 2), state(replicas, insync)])
    assert finding.state == found
    assert found != "bad" or "claw.calls" in finding.says


@pytest.mark.parametrize(
    ("servers", "secured", "found"),
    [
        ("127.0.0.1:9092", False, "ok"),
        ("localhost:1,[::1]:2", False, "ok"),
        ("kafka.example:9092", True, "ok"),
        ("127.0.0.1:1,kafka.example:9092", False, "note"),
    ],
)
def test_a_broker_beyond_this_machine_in_clear_is_said(servers: str, secured: bool, found: str) -> None:
    """One of several is enough, and it is named with the setting that secures it."""
    finding = wire(servers, secured=secured)
    assert finding.state == found
    assert found == "ok" or ("kafka.example" in finding.says and "SASL_SSL" in finding.says)


def test_a_pool_behind_its_facts_is_a_matter_of_how_far() -> None:
    """Never read is bad, far behind a note, a little is how it always is; a partition without a commit counts whole."""
    ends = {("claw.calls", 0): 9000, ("claw.calls", 1): 10}
    assert pool(ends, {("claw.calls", 0): None, ("claw.calls", 1): None}).state == "bad"
    assert pool(ends, {("claw.calls", 0): None, ("claw.calls", 1): 10}).state == "note"
    assert pool(ends, {("claw.calls", 0): 8990, ("claw.calls", 1): 10}).says == "10 facts behind"
    assert pool({("claw.calls", 0): 0}, {("claw.calls", 0): None}).state == "ok"


def key(name: str, **fields: Any) -> KeyRecorded:  # Any: fields of the event
    return KeyRecorded(envelope=envelope("test"), name=name, role="agent", digest="0" * 64, **fields)


def test_keys_that_never_end_are_named() -> None:
    """Those that are over or revoked harm nobody."""
    assert keys([], 5).state == "ok"
    assert (
        keys([key("a", expires_us=9), key("b", revoked=True), key("c", expires_us=None, revoked=True)], 5).state == "ok"
    )
    finding = keys([key("a", expires_us=9), key("old", expires_us=2), key("endless")], 5)
    assert (finding.state, "endless" in finding.says, "old" in finding.says) == ("note", True, False)


def test_a_clock_that_is_ahead_names_its_worker() -> None:
    """Reports from the future; old ones say nothing, since their worker may have ended."""

    def report(worker: str, at_us: int) -> WorkerReported:
        stamp = envelope("test")
        stamp = type(stamp)(event_id=stamp.event_id, occurred_at_us=at_us, producer=stamp.producer)
        fields: dict[str, Any] = {
            "url": "",
            "model_id": "m",
            "model": "m",
            "state": "ready",
            "in_flight": 0,
        }  # Any: as above
        return WorkerReported(envelope=stamp, worker_id=worker, report_interval_s=2.0, **fields)

    now_us = 1_000_000_000
    assert clocks([], now_us).state == "ok"
    assert clocks([report("w0", 0), report("w1", now_us + 1_000_000)], now_us).state == "ok"
    finding = clocks([report("w0", 0), report("w1", now_us + 30_000_000)], now_us)
    assert (finding.state, "worker w1 reported 30 s from now" in finding.says) == ("bad", True)


def test_what_may_not_be_read_is_said_and_ends_no_other_check() -> None:
    """A user without the right to read a topic gets a note in its place."""

    def refused() -> Any:  # Any: never returned
        raise LogError("no right to read claw.keys")

    (finding,) = asked("keys", refused)
    assert (finding.check, finding.state) == ("keys", "note")
    assert "no right to read claw.keys" in finding.says


def test_room_and_files_that_are_short_say_what_to_do(tmp_path: Path) -> None:
    """Each names the place or the command."""
    short = disk("disk", tmp_path, 1e9, "bad")
    assert (short.state, str(tmp_path) in short.says) == ("bad", True)
    assert disk("disk", tmp_path, 0, "bad").state == "ok"
    assert (files(1024).state, "ulimit" in files(1024).says) == ("note", True)
    assert files(-1).state == files(1 << 20).state == "ok"
