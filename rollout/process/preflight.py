"""The conditions that must hold before a worker starts anything. A violation is for the operator to fix, and reported
in one line."""

import json
from pathlib import Path

from claw_r1.rollout.errors import CannotStart
from claw_r1.rollout.process.adapter_place import linear_layers
from claw_r1.rollout.process.server import listening, open_log
from claw_r1.rollout.settings import RolloutSettings
from claw_r1.runtime.monitoring.tracing import TracingRefused, receiver
from claw_r1.runtime.tls.pem import TlsRefused, weights_files
from claw_r1.weights.device import cuda_devices, vllm_is_for_cpu

OWN_SETTING = {"tensor-parallel-size": "--tensor-parallel", "tp": "--tensor-parallel"}
"""Options of vLLM that are settings of a worker, because the worker has to know them."""
SEVERAL_ENGINES = ("data-parallel", "dp", "pipeline-parallel", "pp", "api-server-count", "asc", "nnodes")


def check(settings: RolloutSettings) -> None:
    """Raises CannotStart with one line that says what is missing, and what to do."""
    check_model(settings.model, settings.extra_args)
    _check_extra_args(settings.extra_args)
    if settings.lora_rank_max:
        _check_layers(settings.model)
    if settings.tensor_parallel > 1:
        _check_heads(settings.model, settings.tensor_parallel)
    if settings.device == "cuda" or not settings.runs_on_cpu:
        check_gpus(settings.tensor_parallel)
    check_port(settings.host, settings.port)
    try:
        receiver()
    except TracingRefused as refused:
        raise CannotStart(str(refused)) from refused


def check_files(settings: RolloutSettings) -> None:
    """Raises CannotStart where the log file cannot be written, or the certificate for a trainer's weights cannot be used: with
    the first version it would be too late. Apart from `check`, since a key that others may read is a line of the log."""
    try:
        weights_files()
        if settings.log_file is not None:
            open_log(settings.log_file).close()
    except TlsRefused as refused:
        raise CannotStart(str(refused)) from refused
    except OSError as error:
        raise CannotStart(f"--log-file {settings.log_file} cannot be written: {error.strerror}") from error


def check_model(directory: Path, extra_args: tuple[str, ...]) -> None:
    """Raises CannotStart where it is no model directory that one can chat with."""
    if not directory.is_dir():
        raise CannotStart(f"{directory} is no directory; give a HF model directory (config.json, *.safetensors)")
    if not (directory / "config.json").is_file():
        raise CannotStart(f"{directory} has no config.json, so it is no HF model directory")
    if not any(directory.glob("*.safetensors")):
        raise CannotStart(f"{directory} has no *.safetensors; save the model with save_pretrained()")
    if not _has_chat_template(directory) and not any(word.startswith("--chat-template") for word in extra_args):
        raise CannotStart(
            f"{directory} has no chat template, so it cannot serve chat; save its tokenizer with one, "
            """or add one: --extra-args '["--chat-template", "FILE"]'"""
        )


def _has_chat_template(directory: Path) -> bool:
    """In each place where transformers looks for one."""
    if any((directory / name).exists() for name in ("chat_template.jinja", "chat_template.json", "chat_templates")):
        return True
    return bool(object_in(directory / "tokenizer_config.json").get("chat_template"))


def _check_extra_args(extra_args: tuple[str, ...]) -> None:
    for word in extra_args:
        option = word.partition("=")[0].lstrip("-").replace("_", "-") if word.startswith("-") else ""
        if option in OWN_SETTING:
            raise CannotStart(f"{word} in extra_args: say {OWN_SETTING[option]}")
        if any(option == name or option.startswith(f"{name}-") for name in SEVERAL_ENGINES):
            raise CannotStart(f"{word} in extra_args: a worker is one engine; for more of them start more workers")


def _check_heads(model: Path, ranks: int) -> None:
    """vLLM splits attention by heads. It would repeat key-value heads over more ranks than there are; that is not tested here."""
    config = object_in(model / "config.json")
    nested = config.get("text_config")
    text = nested if isinstance(nested, dict) else config
    heads = text.get("num_attention_heads")
    for name in ("num_attention_heads", "num_key_value_heads"):
        count = text.get(name, heads)
        if isinstance(count, int) and count % ranks:
            raise CannotStart(f"--tensor-parallel {ranks} does not divide {name} {count} of {model / 'config.json'}")


def _check_layers(model: Path) -> None:
    try:
        layers = linear_layers(model)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise CannotStart(f"--lora-rank-max: the files of {model} do not name their tensors: {error}") from error
    if not layers:
        raise CannotStart(f"--lora-rank-max: {model} has no blocks with linear layers that could have an adapter")


def check_gpus(ranks: int) -> None:
    """Raises CannotStart where there are fewer, or this vLLM uses none."""
    if vllm_is_for_cpu():
        raise CannotStart("--device cuda: the installed vLLM is the CPU build; use cpu or auto")
    count = cuda_devices(visible=True)
    if count < ranks:
        raise CannotStart(f"{ranks} GPUs are needed, torch sees {count} (CUDA_VISIBLE_DEVICES names those to be seen)")


def check_port(host: str, port: int) -> None:
    """Raises CannotStart where it is taken."""
    try:
        listening(host, port).close()
    except OSError as error:
        raise CannotStart(
            f"vLLM cannot listen on {host}:{port}: {error.strerror} (--port 0 takes a free port)"
        ) from error


def object_in(path: Path) -> dict[str, object]:
    """Raises CannotStart; {} where the file is not there."""
    try:
        value = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise CannotStart(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise CannotStart(f"{path} holds no JSON object")
    return value
