"""What an operator sees: instant help, one clear line on bad input, the proven arguments."""

import json
import socket
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import save_file

from claw_r1.rollout.__main__ import main
from claw_r1.rollout.errors import CannotStart
from claw_r1.rollout.plugin.guard import SECRET_VARIABLE
from claw_r1.rollout.process import preflight
from claw_r1.rollout.process.command import arguments, environment
from claw_r1.rollout.settings import RolloutSettings

ROOT = Path(__file__).parents[2]


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


def settings(**fields: object) -> RolloutSettings:
    return RolloutSettings(**{"model": Path("m"), "model_id": "m", "worker_id": "w", **fields})  # type: ignore[arg-type]  # fields by name, of any type


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


def test_memory_is_vllms_to_decide_on_a_gpu_and_small_on_the_cpu() -> None:
    """On CUDA a share of the GPU, which a stack lowers for its trainer; on the CPU a fixed cache."""
    gpu = dict(pairwise(arguments(settings(device="cuda", gpu_memory_share=0.45), 1)))
    assert gpu["--gpu-memory-utilization"] == "0.45"
    assert "--kv-cache-memory-bytes" not in gpu
    cpu = dict(pairwise(arguments(settings(device="cpu"), 1)))
    assert cpu["--kv-cache-memory-bytes"] == "256M"
    assert "--gpu-memory-utilization" not in cpu
    chosen = dict(pairwise(arguments(settings(device="cuda", kv_cache_bytes="1G"), 1)))
    assert chosen["--kv-cache-memory-bytes"] == "1G"


def test_adapters_have_a_bound_that_vllm_knows_and_no_head(tmp_path: Path) -> None:
    """Without a rank nothing of them is asked for."""
    ends = ("embed_tokens", "layers.0.mlp.up_proj", "layers.1.mlp.up_proj", "layers.0.self_attn.q_proj")
    tensors = {f"model.{name}.weight": torch.zeros(2, 2) for name in ends}
    tensors |= {"lm_head.weight": torch.zeros(2, 2), "model.layers.0.norm.weight": torch.zeros(2)}
    save_file(tensors, tmp_path / "model.safetensors")
    command = arguments(settings(device="cpu", model=tmp_path, lora_rank_max=9), 1)
    assert dict(pairwise(command))["--max-lora-rank"] == "16"
    at = command.index("--lora-target-modules")
    assert command[at + 1 : at + 4] == ["q_proj", "up_proj", "--enable-auto-tool-choice"]
    assert not any("lora" in word for word in arguments(settings(device="cpu"), 1))
    save_file({"lm_head.weight": torch.zeros(2, 2)}, tmp_path / "model.safetensors")
    with pytest.raises(CannotStart, match="no blocks"):
        preflight.check(settings(device="cpu", model=chat_model_beside(tmp_path), lora_rank_max=8))


def chat_model_beside(directory: Path) -> Path:
    """The same directory, with all that a chat model has beside its weights."""
    (directory / "config.json").write_text("{}")
    (directory / "chat_template.jinja").touch()
    return directory


def test_several_ranks_are_processes_of_their_own() -> None:
    """vLLM gets the number of ranks, and is not told to run its engine in one process."""
    two = settings(device="cpu", tensor_parallel=2)
    assert dict(pairwise(arguments(two, 1)))["--tensor-parallel-size"] == "2"
    assert "VLLM_ENABLE_V1_MULTIPROCESSING" not in environment(two, "s", {})
    assert environment(settings(device="cpu"), "s", {})["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"


def test_an_engine_tells_its_spans_where_the_worker_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the same receiver and protocol, under a name of its own, unless somebody gave it one."""
    assert "--otlp-traces-endpoint" not in arguments(settings(), 1)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    command = arguments(settings(), 1)
    assert command[command.index("--otlp-traces-endpoint") + 1] == "http://127.0.0.1:4318/v1/traces"
    assert environment(settings(), "s", {})["OTEL_SERVICE_NAME"] == "claw-engine"
    assert environment(settings(), "s", {"OTEL_SERVICE_NAME": "mine"})["OTEL_SERVICE_NAME"] == "mine"


def test_a_receiver_that_is_none_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, exit code 2: not an engine that is started again and again."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318")
    assert main(["--model", str(chat_model(tmp_path / "a")), "--model-id", "m", "--device", "cpu"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("rollout: OTEL_EXPORTER_OTLP_ENDPOINT is no address")
