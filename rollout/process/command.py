"""The start of vLLM: arguments and environment as a function of the settings. Why each stands on its line."""

import json
from collections.abc import Mapping

from claw_r1.rollout.plugin.guard import SECRET_VARIABLE
from claw_r1.rollout.plugin.register import BACKEND, DIE_WITH_PARENT
from claw_r1.rollout.process.adapter_place import linear_layers
from claw_r1.rollout.settings import LORA_RANKS, RolloutSettings
from claw_r1.runtime.monitoring.tracing import PROTOCOL, PROTOCOLS, receiver
from claw_r1.runtime.processes.child import module_argv

CPU_KV_CACHE = "256M"
SERVER = "claw_r1.rollout.process.vllm_server"


def arguments(settings: RolloutSettings, port: int) -> list[str]:
    """The command line."""
    command = [
        # Not `vllm serve`: it asks for the version of a distribution that the CPU build does not have.
        *module_argv(SERVER),
        *("--model", str(settings.model), "--served-model-name", settings.served_name),
        *("--host", settings.host, "--port", str(port)),
        *("--max-model-len", str(settings.max_model_len or "auto"), "--max-num-seqs", str(settings.max_num_seqs)),
        # The default silently applies the model directory's top_k and top_p.
        *("--generation-config", "vllm"),
        # Log-probabilities of the distribution that was sampled from, after temperature.
        *("--logprobs-mode", "processed_logprobs"),
        *("--weight-transfer-config", json.dumps({"backend": BACKEND})),
        # The last one is the outermost: nothing is tracked for a request that the guard refuses.
        *(
            "--middleware",
            "claw_r1.rollout.plugin.handover.TokenHandover",
            "--middleware",
            "claw_r1.rollout.plugin.guard.ControlGuard",
        ),
        # The probe of a version (rollout/probe.py) goes before calls that wait; those keep the order in which they came.
        *("--scheduling-policy", "priority"),
        *("--enable-prefix-caching", "--enable-request-id-headers", "--enable-prompt-tokens-details"),
        "--disable-uvicorn-access-log",
    ]
    if settings.tensor_parallel > 1:
        command += ["--tensor-parallel-size", str(settings.tensor_parallel)]
    if not settings.runs_on_cpu:
        command += ["--gpu-memory-utilization", str(settings.gpu_memory_share)]
    if (kv_cache := settings.kv_cache_bytes or (CPU_KV_CACHE if settings.runs_on_cpu else None)) is not None:
        command += ["--kv-cache-memory-bytes", kv_cache]
    if rank := settings.lora_rank_max:
        rank = next(bound for bound in LORA_RANKS if bound >= rank)
        command += ["--enable-lora", "--max-loras", "1", "--max-lora-rank", str(rank)]
        # Not the head: with an adapter of it vLLM 0.32 on the CPU ends at a probe that meets other calls.
        command += ["--lora-target-modules", *linear_layers(settings.model)]
    if settings.tool_call_parser is not None:
        command += ["--enable-auto-tool-choice", "--tool-call-parser", settings.tool_call_parser]
    if settings.runs_on_cpu:
        command += ["--enforce-eager"]  # with an explicit cache size this skips the warm-up
        # A prompt in several parts ends vLLM 0.32 on the CPU where its request has a seed: it rewinds the generator by an
        # offset, which torch's for the CPU has not.
        command += ["--no-enable-chunked-prefill"]
    if (url := receiver()) is not None:
        command += ["--otlp-traces-endpoint", url]
    command += ["--dtype", settings.dtype or ("float32" if settings.runs_on_cpu else "auto")]
    return [*command, *settings.extra_args]


def environment(settings: RolloutSettings, secret: str, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of the processes of a worker's vLLM."""
    ours = {
        SECRET_VARIABLE: secret,
        "VLLM_PLUGINS": "claw_weights,claw_tokens",  # endpoint plugins load only when named
        "VLLM_SERVER_DEV_MODE": "1",  # the control routes; the guard closes them
        PROTOCOLS[0]: PROTOCOL,  # of its spans; it would take another one
        "OTEL_SERVICE_NAME": inherited.get("OTEL_SERVICE_NAME", "claw-engine"),
    }
    several = settings.tensor_parallel > 1
    return {**inherited, **quiet_environment(settings.runs_on_cpu, settings.threads, several_ranks=several), **ours}


def quiet_environment(runs_on_cpu: bool, threads: int, *, several_ranks: bool) -> dict[str, str]:
    """Returns the environment of any vLLM that we start: it asks nobody outside, ends with its parent, and shares the
    cores."""
    ours = {
        DIE_WITH_PARENT: "1",
        "VLLM_PLUGINS": "claw_weights",  # it is what reads the line above
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if runs_on_cpu:
        ours |= {
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # several servers would fight for the same cores
            "OMP_NUM_THREADS": str(threads),
            "TORCHDYNAMO_DISABLE": "1",  # or the first request with logprobs compiles for 19 s
        }
        if not several_ranks:
            ours["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # one engine process instead of engine and worker
    return ours
