"""What a person types: help at once, one clear line for each mistake."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from claw_r1.eventlog.settings import LogSettings

pytestmark = pytest.mark.process

COMMANDS = [
    "up",
    "down",
    "status",
    "demo",
    "broker",
    "topics",
    "gateway",
    "streams",
    "train",
    "rollout",
    "agents",
    "replay",
    "inspect",
    "export",
    "lineage",
    "dlq",
    "doctor",
    "upgrade",
    "pool",
    "runs",
    "quality",
    "keys",
    "registry",
]
HEAVY = ("torch", "transformers", "vllm", "deepspeed", "faust", "confluent_kafka", "matplotlib")


def claw(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "claw_r1.claw.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env)


def test_help_lists_every_command_of_the_contract() -> None:
    """`claw --help` names each command."""
    shown = claw("--help").stdout
    assert [command for command in COMMANDS if f" {command} " not in shown] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    """`claw X --help` says what X does and exits with 0."""
    done = claw(command, "--help")
    assert done.returncode == 0, done.stderr
    assert "sage" in done.stdout


def test_the_package_is_the_command() -> None:
    """`python -m claw_r1.claw` is what the script `claw` is."""
    run = [sys.executable, "-m", "claw_r1.claw", "--help"]
    shown = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert (shown.returncode, "agents learn through a Kafka log" in shown.stdout) == (0, True), shown.stderr


def test_help_imports_nothing_heavy() -> None:
    """Reading the command line needs no numeric library and no Kafka client."""
    code = "import sys, claw_r1.claw.cli, claw_r1.claw.local.stack, claw_r1.runtime.processes.processes; print([m for m in sys.argv[1:] if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code, *HEAVY], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["replay", "--topic", "nonsense"], "no topic 'nonsense' in the catalogue"),
        (["replay", "--filter", "nonsense=x"], "no record has a nonsense; there are key, partition, type"),
        (["dlq", "show"], "name letters by PARTITION@OFFSET"),
        (["dlq", "redrive"], "or all of them by --all"),
        (["topics", "manifests", "--kind", "Topic"], "--kind Topic: there are"),
        (["pool", "curate", "--undo", "c1", "g17"], "ids cannot stand beside it"),
        (["pool", "curate", "--undo", "c1", "--tag", "x", "--no-train"], "filters and a judgement cannot stand"),
        (["pool", "curate", "--undo", "c1", "--why", "again"], "a judgement cannot stand beside it"),
        (["pool", "evict", "g17", "--who", "ann", "--why", " "], "why? --why TEXT"),
        (["demo", "--batches-min", "9", "--batches-max", "3"], "--batches-min 9 is above --batches-max 3"),
        (["up", "--model", "/nonexistent", "--port", "0"], "is no HF model directory"),
        (["up", "--config", "/nonexistent", "--port", "0"], "is no file"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments: list[str], says: str, tmp_path: Path) -> None:
    """Bad input is refused before anything is started, without a traceback."""
    done = claw(*arguments, env={**os.environ, "CLAW_HOME": str(tmp_path)})
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_file_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    """Whatever the system refuses is said with the file's name: exit code 1 would be an answer, and a traceback is for a bug."""
    (tmp_path / "file").touch()
    done = claw("up", "--port", "0", env={**os.environ, "CLAW_HOME": str(tmp_path / "file" / "home")})
    assert (done.returncode, done.stderr) == (2, f"claw: {tmp_path}/file/home/up: Not a directory\n")


@pytest.mark.kafka
def test_an_export_below_a_file_is_one_line(log_settings: LogSettings, tmp_path: Path) -> None:
    """What a command says of its folder is no answer about the log."""
    (tmp_path / "file").touch()
    env = {**os.environ, "CLAW_HOME": str(tmp_path), "KAFKA_BOOTSTRAP_SERVERS": log_settings.bootstrap_servers}
    out = tmp_path / "file" / "set"
    done = claw("export", "--follow", "--prefix", log_settings.prefix, "--out", str(out), env=env)
    assert (done.returncode, done.stderr) == (2, f"claw: {out}/parts: Not a directory\n")


def test_a_broker_that_refuses_is_one_line(tmp_path: Path) -> None:
    """A named broker that does not answer is said so, with what to do."""
    done = claw(
        "topics", "describe", env={**os.environ, "CLAW_HOME": str(tmp_path), "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    )
    assert done.returncode == 2
    assert "no Kafka broker answers at 127.0.0.1:1" in done.stderr
