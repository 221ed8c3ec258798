"""The command line of vLLM: the proven arguments, and no secret among them."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from claw_r1.rollout.errors import CannotStart
from claw_r1.rollout.plugin.guard import SECRET_VARIABLE
from claw_r1.rollout.process import preflight
from claw_r1.rollout.process.command import arguments, environment
from tests.rollout.scripted import settings


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
