"""The modules that a program finds: the optional libraries of its room, or one line that names what to install; and a
person's own, behind all that is installed, which they must not replace."""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import ParamSpec

EXTRAS = {
    "gateway": ("cryptography", "fastapi", "httptools", "starlette", "uvicorn", "uvloop"),
    "streams": ("aiokafka", "cramjam", "faust", "uvloop"),
    "trainer": ("blake3", "deepspeed", "numpy", "safetensors", "tensorboard", "torch", "transformers"),
    "lora": ("peft",),
    "rollout": ("aiohttp", "blake3", "vllm"),
    "agentflow": ("aiohttp",),
    "consumers": (
        "aiohttp", "cryptography", "fastapi", "krippendorff", "numpy", "pyarrow", "pytest", "scipy", "starlette",
        "tokenizers", "uvicorn",
    ),
    "traces": ("opentelemetry",),
    "stack": ("cryptography", "jgo", "matplotlib", "numpy"),
}  # fmt: skip
"""Extra of this project -> the modules that it brings and we import."""

NO_PIP = {"rollout": "claw setup rollout (CPU), or pip install 'claw-r1[rollout-gpu]'"}
"""Extra that pip cannot resolve -> what installs it instead."""
CANNOT_START = 2
Arguments = ParamSpec("Arguments")


def absent(extra: str) -> list[str]:
    """The modules of an extra that are not installed."""
    return [name for name in EXTRAS[extra] if name not in sys.modules and importlib.util.find_spec(name) is None]


def advice(error: ModuleNotFoundError, extras: Sequence[str]) -> str | None:
    """Returns what to install, where the module that is missing is one of these extras'."""
    module = (error.name or "").partition(".")[0]
    extra = next((extra for extra in extras if module in EXTRAS[extra]), None)
    if extra is None:
        return None
    install = NO_PIP.get(extra, f"pip install 'claw-r1[{extra}]'")
    return f"{module} is not installed, it belongs to the extra {extra}: {install}"


def needs_extra(extra: str) -> Callable[[Callable[Arguments, int]], Callable[Arguments, int]]:
    """A program's `main` that ends with one line and `CANNOT_START` where a library of its extra is not installed.

    Its heavy imports stand behind the reading of its arguments, so that `--help` needs none of them.
    """

    def decorate(main: Callable[Arguments, int]) -> Callable[Arguments, int]:
        @wraps(main)
        def starting(*arguments: Arguments.args, **names: Arguments.kwargs) -> int:
            try:
                return main(*arguments, **names)
            except ModuleNotFoundError as error:
                if (line := advice(error, [extra])) is None:
                    raise
                print(f"claw: {line}", file=sys.stderr)
                return CANNOT_START

        return starting

    return decorate


def importable(folder: Path | None = None) -> None:
    """Lets modules of a folder be imported by name; None: of the working folder, where one's own code lies."""
    place = str(Path.cwd() if folder is None else folder)
    if place not in sys.path:
        sys.path.append(place)
