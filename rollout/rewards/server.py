"""vLLM's pooling runner as a child: checked before it starts, one line when it answers, gone when this returns.

Invariant: it is not started again. Its clients wait and retry (`consumers/rewards/http_client.py`), and the
parent of this process already has a supervisor that restarts it.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from claw_r1.rollout.errors import CannotStart, ServerDied
from claw_r1.rollout.process.activity import StartPatience, activity_of
from claw_r1.rollout.process.command import SERVER, quiet_environment
from claw_r1.rollout.process.preflight import check_gpus, check_model, check_port, object_in
from claw_r1.rollout.process.server import KILL_TIMEOUT_S, free_port, open_log
from claw_r1.rollout.rewards.settings import RewardServerSettings
from claw_r1.runtime.processes import child
from claw_r1.runtime.processes.reaper import KILL_NOW, reaped
from claw_r1.runtime.stop_signals import StopSignals
from claw_r1.schemas.http import url_host

CPU_KV_CACHE = "128M"
CLASSIFIERS = ("ForSequenceClassification", "ForTokenClassification", "RewardModel")
"""Ends of the names of architectures that have a head for numbers."""
HEALTH_TIMEOUT_S = 2.0


def check(settings: RewardServerSettings) -> None:
    """Raises CannotStart with one line that says what is missing."""
    check_model(settings.model, settings.extra_args)
    architectures = object_in(settings.model / "config.json").get("architectures")
    names = [str(name) for name in architectures] if isinstance(architectures, list) else []
    if not any(name.endswith(CLASSIFIERS) for name in names) and "--convert" not in settings.extra_args:
        raise CannotStart(
            f"{settings.model} is no classification or reward model, but {', '.join(names) or 'of no named architecture'}; "
            "save one with AutoModelForSequenceClassification"
        )
    if not settings.runs_on_cpu:
        check_gpus(1)
    check_port(settings.host, settings.port)


def arguments(settings: RewardServerSettings, port: int) -> list[str]:
    """The command line of vLLM."""
    cpu = settings.runs_on_cpu
    command = [
        # Not `vllm serve`: see rollout/process/command.py.
        *child.module_argv(SERVER, "--runner", "pooling"),
        *("--model", str(settings.model), "--served-model-name", settings.served_name),
        *("--host", settings.host, "--port", str(port), "--disable-uvicorn-access-log"),
        *("--max-model-len", str(settings.max_model_len or "auto"), "--max-num-seqs", str(settings.max_num_seqs)),
        *("--dtype", settings.dtype or ("float32" if cpu else "auto")),
    ]
    if settings.task != "auto":
        command += ["--pooler-config", json.dumps({"task": settings.task})]
    if (kv_cache := settings.kv_cache_bytes or (CPU_KV_CACHE if cpu else None)) is not None:
        command += ["--kv-cache-memory-bytes", kv_cache]
    command += ["--enforce-eager"] if cpu else ["--gpu-memory-utilization", str(settings.gpu_memory_share)]
    return [*command, *settings.extra_args]


def serve(settings: RewardServerSettings) -> None:
    """Until SIGTERM or SIGINT. Raises CannotStart before anything runs, ServerDied when vLLM ends by itself or never answers."""
    check(settings)
    stop = StopSignals()
    port = settings.port or free_port(settings.host)
    environment = {**os.environ, **quiet_environment(settings.runs_on_cpu, settings.threads, several_ranks=False)}
    output = open_log(settings.log_file)
    command = reaped(arguments(settings, port))
    vllm = child.start(
        command, death_signal=KILL_NOW, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
    )
    if output is not sys.stderr:
        output.close()
    url = f"http://{url_host(settings.host)}:{port}"
    try:
        _wait_healthy(vllm, url, settings, stop)
        if not stop.received:
            print(f"claw rewards serve: {settings.model} as {settings.served_name} at {url}", flush=True)
        while not stop.wait():
            _still_there(vllm, settings.log_file)
    finally:
        child.end(vllm, (signal.SIGTERM, settings.stop_timeout_s), (KILL_NOW, KILL_TIMEOUT_S))


def _wait_healthy(vllm: "subprocess.Popen[bytes]", url: str, settings: RewardServerSettings, stop: StopSignals) -> None:
    patience = StartPatience(settings, time.monotonic())
    while not stop.wait() and not _answers(f"{url}/health"):
        _still_there(vllm, settings.log_file)
        try:
            patience.look(activity_of(vllm.pid, settings.log_file), time.monotonic())
        except ServerDied as error:
            raise ServerDied(f"{error}{_see(settings.log_file)}") from error


def _still_there(vllm: "subprocess.Popen[bytes]", log_file: Path | None) -> None:
    if child.has_ended(vllm):
        raise ServerDied(f"vLLM ended by itself{_see(log_file)}")


def _see(log_file: Path | None) -> str:
    return f"; its words are in {log_file}" if log_file else ""


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=HEALTH_TIMEOUT_S) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False
