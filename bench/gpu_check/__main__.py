"""`python -m bench.gpu_check [--part P]… [--json]`: exit 0 when no part failed, 1 when one did, 2 for a wrong argument."""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.gpu_check.parts import PARTS, Failed, Figures, Ground, Skipped, run_apart

LARGE = {"groups": 4, "members": 4, "prompt": 512, "response": 512, "micro_batch_tokens_max": 16_384}
"""16 k tokens in one micro-batch."""
NEEDED = ("torch", "transformers", "safetensors", "pydantic", "PyYAML", "deepspeed")
OLDEST = {"torch": (2, 11), "transformers": (5, 16)}


def main(argv: Sequence[str] | None = None) -> int:
    """One line per part on stderr; with --json one object on stdout."""
    parser = argparse.ArgumentParser(prog="bench.gpu_check", description=__doc__)
    parser.add_argument("--part", choices=PARTS, action="append", help="this part; may be repeated")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args(argv)
    why_not = obstacle()
    results: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
        ground = Ground(folder=Path(folder), large_job=LARGE, run=run_apart)
        for name in options.part or PARTS:
            results[name] = {"status": "skipped", "reason": why_not} if why_not else checked(name, ground)
            figures = {key: value for key, value in results[name].items() if key != "status"}
            print(f"{name:8}{results[name]['status']:8}{figures}", file=sys.stderr, flush=True)
    failed = any(result["status"] == "failed" for result in results.values())
    if options.json:
        print(json.dumps({"ok": not failed, "versions": versions(), "parts": results}))
    return 1 if failed else 0


def checked(name: str, ground: Ground) -> Figures:
    """Its status, figures and seconds; what breaks a part is its failure and not the end of the check."""
    began = time.monotonic()
    try:
        figures: Figures = {"status": "ok", **PARTS[name](ground)}
    except Skipped as skipped:
        figures = {"status": "skipped", "reason": str(skipped)}
    except Failed as failed:
        figures = {"status": "failed", "reason": str(failed)}
    except Exception as error:  # noqa: BLE001  # the other parts are run all the same
        figures = {"status": "failed", "reason": f"{type(error).__name__}: {error}"}
    return {**figures, "seconds": round(time.monotonic() - began, 1)}


def obstacle() -> str | None:
    """Returns why nothing can be checked here; None: it can."""
    missing = [name for name in NEEDED if not _installed(name)]
    if missing:
        return f"not installed: {', '.join(missing)}"
    for name, oldest in OLDEST.items():
        if numbers(version(name)) < oldest:
            return f"{name} {version(name)} is older than {'.'.join(map(str, oldest))}"
    import torch

    if not torch.cuda.is_available():
        return "torch sees no CUDA device here" + (
            "" if torch.version.cuda else f": {torch.__version__} is built without CUDA"
        )
    return None


def numbers(text: str) -> tuple[int, ...]:
    """The first two numbers of a version."""
    return tuple(int(part) for part in text.split(".")[:2])


def versions() -> dict[str, str]:
    """Returns the versions of the packages that the check needs."""
    return {name: version(name) for name in NEEDED if _installed(name)}


def _installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
