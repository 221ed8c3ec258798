"""`claw doctor`: each finding says what would not hold, and what to do."""

import json
import re
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs forget to re-export them
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from claw_r1.claw.answers import emit
from claw_r1.claw.local.broker import ANSWER_TIMEOUT_S
from claw_r1.claw.local.kafka.node import LocalBroker
from claw_r1.claw.show.doctor.command import run_doctor
from claw_r1.claw.show.doctor.findings import checked
from claw_r1.eventlog.errors import BrokerUnreachable, LogError
from claw_r1.eventlog.kafka.admin import create_topics
from claw_r1.eventlog.kafka.librdkafka import admin_config
from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.settings import LogSettings
from claw_r1.gateway.settings import GatewaySettings
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS
from tests.caches import share_caches
from tests.facts import call

ROOT = Path(__file__).parents[4]
DOCTOR, PAGE = ROOT / "claw" / "show" / "doctor", ROOT / "docs" / "installing.md"


def findings(prefix: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, dict[str, str]]]:
    """Exit code, and the findings by check."""
    code = emit(run_doctor(prefix=prefix), as_json=True)
    report = json.loads(capsys.readouterr().out.splitlines()[-1])  # clients log to it, too, in a test
    assert report["ok"] is (code == 0)
    assert all(finding["remedy"] for finding in report["findings"] if finding["severity"] != "ok")
    return code, {finding["check"]: finding for finding in report["findings"]}


@pytest.mark.kafka
def test_a_broker_with_the_catalogue_is_sound(
    log_settings: LogSettings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is an error; that there is one replica is a warning, which is right for a local stack."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", log_settings.bootstrap_servers)
    code, by_check = findings(log_settings.prefix, capsys)
    assert (code, by_check["broker"]["severity"], by_check["replication"]["severity"]) == (0, "ok", "warning")
    assert by_check["broker"]["says"].startswith(f"{log_settings.bootstrap_servers} answers, with the brokers ")
    assert "BrokerInfo" not in by_check["broker"]["says"], "a person reads it"
    assert {"disk", "java", "gateway", "streams", "trainer", "rollout"} <= by_check.keys()
    sound = ("wire", "version", "topics", "retention", "pool", "keys", "fold", "clocks")
    assert [by_check[check]["severity"] for check in sound] == ["ok"] * len(sound)
    with_fact = EventProducer(log_settings)
    with_fact.publish_now(CALLS, group_key("g"), call("g", "t", "c"))
    with_fact.close()
    code, by_check = findings(log_settings.prefix, capsys)
    assert (code, by_check["pool"]["severity"]) == (1, "error")
    assert "`claw streams`" in by_check["pool"]["remedy"]


@pytest.mark.kafka
def test_missing_topics_are_an_error_and_name_the_command(
    broker: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A prefix without topics is no installation: exit code 1, and how to create it."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker)
    code, by_check = findings(f"t{uuid.uuid4().hex[:10]}", capsys)
    assert (code, by_check["topics"]["severity"]) == (1, "error")
    assert "claw topics create" in by_check["topics"]["remedy"]


@pytest.mark.kafka
def test_another_generation_lacks_its_topics(
    log_settings: LogSettings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pool of the generation in use must be there: `CLAW_LOG_GENERATION` names it."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", log_settings.bootstrap_servers)
    monkeypatch.setenv("CLAW_LOG_GENERATION", "7")
    code, by_check = findings(log_settings.prefix, capsys)
    assert (code, by_check["topics"]["severity"]) == (1, "error")
    create_topics(log_settings.model_copy(update={"generation": 7}))
    assert findings(log_settings.prefix, capsys)[0] == 0


@pytest.mark.kafka
def test_a_retention_that_somebody_set_is_found_on_the_broker(
    log_settings: LogSettings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is said once, with the command for that topic."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", log_settings.bootstrap_servers)
    calls = log_settings.catalogue().name(CALLS)
    ending = ConfigEntry("retention.ms", "3600000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, calls, incremental_configs=[ending])
    admin = AdminClient(admin_config(log_settings))  # kept: its requests end with it
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()
    code, by_check = findings(log_settings.prefix, capsys)
    assert (code, by_check["retention"]["severity"], by_check["topics"]["severity"]) == (1, "error", "ok")
    assert f"--topic {calls} " in by_check["retention"]["remedy"]


def test_a_broker_that_does_not_answer_is_a_finding_not_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rest of the machine is still looked at; the text has one line per finding, and the answer comes within its bound."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("CLAW_HOME", str(tmp_path / "home"))
    began_s = time.monotonic()
    assert emit(run_doctor(prefix="claw"), as_json=False) == 1
    assert time.monotonic() - began_s < ANSWER_TIMEOUT_S + 5
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.split()[1] == "broker"] == ["error"]
    assert any(line.split()[1] == "disk" for line in lines)


def test_each_check_stands_in_the_page() -> None:
    """docs/installing.md says of each check what it finds, and of no check that is not there."""
    rows = re.findall(r"^\| ((?:`[a-z]+`(?:, )?)+) \|", PAGE.read_text(), flags=re.MULTILINE)
    named = {check for row in rows for check in re.findall(r"[a-z]+", row)}
    sources = "".join(path.read_text() for path in DOCTOR.glob("*.py"))
    made = re.findall(r"(?:Finding|checked)\(\s*\"([a-z]+)\"|yield \"([a-z]+)\"", sources)
    assert named == {one or other for one, other in made}


def test_what_may_not_be_read_is_said_and_ends_no_other_check() -> None:
    """A user without the right to read a topic gets a note in its place."""

    def refused() -> Any:  # Any: never returned
        raise LogError("no right to read claw.keys")

    (finding,) = checked("keys", refused)
    assert (finding.check, finding.severity) == ("keys", "warning")
    assert "no right to read claw.keys" in finding.says


def test_a_broker_that_goes_away_is_waited_for_once() -> None:
    """Every other check would wait for it, too."""

    def away() -> Any:  # Any: never returned
        raise BrokerUnreachable("nobody answers")

    with pytest.raises(BrokerUnreachable):
        list(checked("keys", away))


def test_settings_that_are_refused_are_a_finding() -> None:
    """Their values, which may be secret, are not said."""

    def refused() -> Any:  # Any: never returned
        return GatewaySettings.model_validate({"spool_bytes_max": -7})

    (finding,) = checked("spool", refused)
    assert (finding.severity, "GatewaySettings" in finding.says, "-7" in finding.says) == ("error", True, False)


@pytest.mark.kafka
@pytest.mark.slow
def test_a_broker_that_was_started_for_the_question_is_no_broker_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In an outage of a local stack that is the finding: all that follows is of a Kafka that ends with the command."""
    share_caches(tmp_path)
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.setenv("CLAW_HOME", str(tmp_path))
    _, by_check = findings("claw", capsys)
    assert by_check["broker"]["severity"] == "warning"
    assert by_check["broker"]["says"].startswith("none was running; 127.0.0.1:")
    assert LocalBroker(tmp_path / "broker").process is None
