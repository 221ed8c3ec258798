"""`claw doctor`: each finding says what would not hold, and what to do."""

import json
import sys
import uuid
from pathlib import Path

import pytest

from claw_r1.claw import bf16
from claw_r1.claw.answers import emit
from claw_r1.claw.show.doctor import cpu, run_doctor
from claw_r1.eventlog.kafka.admin import create_topics
from claw_r1.eventlog.settings import LogSettings


def findings(prefix: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, dict[str, str]]]:
    """Exit code, and the findings by check."""
    code = emit(run_doctor(prefix=prefix), as_json=True)
    report = json.loads(capsys.readouterr().out)
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
