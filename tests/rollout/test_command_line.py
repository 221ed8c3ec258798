"""What an operator sees: instant help, one clear line on bad input, the proven arguments."""

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from pydantic import ValidationError

from rollout.__main__ import main
from rollout.plugin.guard import SECRET_VARIABLE
from rollout.process.command import arguments, environment
from rollout.settings import RolloutSettings

ROOT = Path(__file__).parents[2]


def test_the_supervisor_loads_no_torch() -> None:
    """The supervisor is a small process: the engine's libraries stay in vLLM's processes."""
    code = "import sys, rollout.supervisor, rollout.process.server; print([m for m in ('torch', 'vllm') if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize("content", ["missing", "empty", "no-config", "no-weights"])
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
    assert main(["--model", str(model), "--model-id", "m"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert str(model) in lines[0]


def test_a_bad_setting_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A port that is none is refused by name."""
    assert main(["--model", str(tmp_path), "--model-id", "m", "--port", "99999"]) == 2
    assert "port" in capsys.readouterr().err


def settings(**fields: object) -> RolloutSettings:
    return RolloutSettings(model=Path("m"), model_id="m", worker_id="w", **fields)  # type: ignore[arg-type]


def test_the_engine_samples_what_it_reports() -> None:
    """The model directory's sampling defaults are off, and log-probabilities are those after temperature."""
    command = arguments(settings(device="cpu"), 1)
    pairs = list(pairwise(command))
    assert ("--generation-config", "vllm") in pairs
    assert ("--logprobs-mode", "processed_logprobs") in pairs
    assert ("--dtype", "float32") in pairs
    assert json.loads(dict(pairs)["--weight-transfer-config"]) == {"backend": "claw"}


def test_a_gpu_gets_no_settings_of_the_cpu() -> None:
    """On CUDA neither eager mode nor float32 nor the CPU's environment is forced."""
    command = arguments(settings(device="cuda"), 1)
    assert "--enforce-eager" not in command
    assert dict(pairwise(command))["--dtype"] == "auto"
    assert "TORCHDYNAMO_DISABLE" not in environment(settings(device="cuda"), "s", {})


def test_the_secret_is_in_no_argument() -> None:
    """Arguments are visible to every user of the machine; the secret travels in the environment."""
    assert environment(settings(), "s3cret", {})[SECRET_VARIABLE] == "s3cret"
    assert not any("s3cret" in argument for argument in arguments(settings(), 1))


def test_contradicting_deadlines_are_refused() -> None:
    """A health deadline shorter than the interval is an error at load, not a restart loop."""
    with pytest.raises(ValidationError, match="health_timeout_s"):
        settings(health_interval_s=5, health_timeout_s=1)


def test_a_worker_without_a_name_is_called_after_its_host() -> None:
    """Reports need a name that is the same after a restart."""
    assert RolloutSettings(model=Path("m"), model_id="m").worker_id == f"worker-{os.uname().nodename}"
