"""What is looked at before an engine starts: one clear line on bad input."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from claw_r1.rollout.__main__ import main
from claw_r1.rollout.errors import CannotStart
from claw_r1.rollout.process import preflight
from tests.rollout.scripted import settings

ROOT = Path(__file__).parents[3]


def test_the_supervisor_loads_no_torch() -> None:
    """The supervisor is a small process: the engine's libraries stay in vLLM's processes."""
    code = "import sys, claw_r1.rollout.supervisor, claw_r1.rollout.process.server; print([m for m in ('torch', 'vllm') if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize("content", ["missing", "empty", "no-config", "no-weights", "no-template"])
def test_a_directory_that_is_no_model_is_one_clear_line(
    tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 and one line that names the directory; nothing is started."""
    model = tmp_path / "model"
    if content != "missing":
        model.mkdir()
    if content == "no-config":
        (model / "model.safetensors").touch()
    if content == "no-weights":
        (model / "config.json").write_text("{}")
    if content == "no-template":
        chat_model(model)
        (model / "chat_template.jinja").unlink()
    assert main(["--model", str(model), "--model-id", "m"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert str(model) in lines[0]


def chat_model(directory: Path, **config: object) -> Path:
    """What the checks before a start look at."""
    directory.mkdir(exist_ok=True)
    heads = {"num_attention_heads": 8, "num_key_value_heads": 2}
    (directory / "config.json").write_text(json.dumps({**heads, **config}))
    (directory / "model.safetensors").touch()
    (directory / "chat_template.jinja").touch()
    return directory


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tensor_parallel": 3}, "num_attention_heads 8"),
        ({"tensor_parallel": 4}, "num_key_value_heads 2"),
        ({"extra_args": ("--data-parallel-size", "2")}, "more workers"),
        ({"extra_args": ("-dp=2",)}, "more workers"),
        ({"extra_args": ("--pipeline_parallel_size=2",)}, "more workers"),
        ({"extra_args": ("-tp", "2")}, "--tensor-parallel"),
        ({"lora_rank_max": 8}, "do not name their tensors"),
        ({"device": "cuda"}, "CPU build"),
        ({"host": "203.0.113.1"}, "cannot listen"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    tmp_path: Path, fields: dict[str, object], words: str
) -> None:
    """One line that says what to change."""
    chosen = settings(**{"device": "cpu", **fields, "model": chat_model(tmp_path / "model")})
    with pytest.raises(CannotStart, match=words) as refusal:
        preflight.check(chosen)
    assert "\n" not in str(refusal.value)


def test_a_port_in_use_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and one line that names the port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        model = chat_model(tmp_path / "model")
        assert main(["--model", str(model), "--model-id", "m", "--device", "cpu", "--port", port]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert port in line


def test_what_can_work_is_not_refused(tmp_path: Path) -> None:
    """Two ranks for two key-value heads, of a model whose text part has a configuration of its own, too."""
    preflight.check(settings(device="cpu", tensor_parallel=2, model=chat_model(tmp_path / "a")))
    nested = chat_model(tmp_path / "b", num_attention_heads=3, text_config={"num_attention_heads": 2})
    preflight.check(settings(device="cpu", tensor_parallel=2, model=nested))


def test_a_bad_setting_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A port that is none is refused by name."""
    assert main(["--model", str(tmp_path), "--model-id", "m", "--port", "99999"]) == 2
    assert "port" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["certificate", "log file", "log folder"])
def test_a_file_that_cannot_be_used_is_one_clear_line(tmp_path: Path, wrong: str) -> None:
    """Exit code 2 and one line that names it: with its first version the worker ended with a traceback, or never began."""
    certificate, taken = tmp_path / "tls.crt", tmp_path / "taken"
    taken.touch()
    if wrong == "certificate":
        certificate.write_text("half of a rene")
    named = {"certificate": certificate, "log file": tmp_path, "log folder": taken / "vllm.log"}[wrong]
    command = [
        sys.executable,
        "-m",
        "claw_r1.rollout",
        "--model",
        str(chat_model(tmp_path / "model")),
        "--model-id",
        "m",
    ]
    command += ["--device", "cpu", "--port", "0"]
    command += [] if wrong == "certificate" else ["--log-file", str(named)]
    variable = {"CLAW_WEIGHTS_TLS_CERTIFICATE_FILE": str(certificate)} if wrong == "certificate" else {}
    ran = subprocess.run(
        command, cwd=ROOT, env=os.environ | variable, capture_output=True, text=True, timeout=60, check=False
    )
    (line,) = ran.stderr.splitlines()
    assert (ran.returncode, line.startswith("rollout: "), str(named) in line) == (2, True, True), line


def test_a_receiver_that_is_none_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, exit code 2: not an engine that is started again and again."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318")
    assert main(["--model", str(chat_model(tmp_path / "a")), "--model-id", "m", "--device", "cpu"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("rollout: OTEL_EXPORTER_OTLP_ENDPOINT is no address")
