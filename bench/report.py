"""The figures of a bench beside their targets: a table, and `bench/out/NAME.json`, where a part that was not measured keeps its last."""

import json
import operator
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent / "out"
ROOT = Path(__file__).resolve().parents[1]
Figures = dict[str, Any]  # numbers, and objects of them
Targets = Mapping[str, tuple[str, float]]
Measure = Callable[[], Figures]
SIGNS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
TIMEOUT_S = 3 * 3600.0
CHILD = (
    "import json, importlib, sys; measure = getattr(importlib.import_module(sys.argv[1]), sys.argv[2]);"
    "print('\\n' + json.dumps(measure(*map(int, sys.argv[3:]))))"
)


def run(
    name: str,
    parts: Mapping[str, Measure],
    targets: Targets,
    *,
    as_json: bool = False,
    resume: bool = False,
    folder: Path = OUT,
) -> int:
    """Measures the parts and prints all that is known; 0: measured, whatever the figures say, 1: a part could not be.

    resume: where the run before was stopped, or a part failed, only what it left.
    """
    path = folder / f"{name}.json"
    kept: Figures = json.loads(path.read_text()) if path.exists() else {}
    folder.mkdir(exist_ok=True)
    left = [part for part in parts if resume and part in kept.get("_left", ())] or list(parts)
    for part in tuple(left):
        kept["_left"] = left
        _write(path, kept)
        print(f"measuring {part} ...", file=sys.stderr, flush=True)
        kept.pop(part, None)
        figures = parts[part]()
        kept |= figures
        if not _has_failed(part, figures):
            left.remove(part)
            kept["_dates"] = {**kept.get("_dates", {}), part: time.strftime("%Y-%m-%d")}
        _write(path, kept)
    print(json.dumps(kept) if as_json else table(kept, targets))
    return 1 if left else 0


def _has_failed(part: str, figures: Figures) -> bool:
    return figures.keys() == {part} and "failed" in figures[part]


def _write(path: Path, figures: Figures) -> None:
    draft = path.with_suffix(".draft")  # a kill leaves the old figures or the new ones
    draft.write_text(json.dumps(figures, indent=1) + "\n")
    draft.rename(path)


def in_child(part: str, module: str, function: str = "measure", *arguments: int) -> Measure:
    """A part whose function runs in a process of its own, so that no part pays for another's memory and threads."""
    return partial(measured, part, module, function, *arguments)


def measured(part: str, module: str, function: str = "measure", *arguments: int) -> Figures:
    """The figures of a part; `{"PART": {"failed": why}}` where it broke, so that the others still run."""
    command = [sys.executable, "-c", CHILD, module, function, *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    began = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=TIMEOUT_S
        )
        figures: Figures = json.loads(done.stdout.strip().splitlines()[-1])
    except (subprocess.SubprocessError, ValueError, IndexError) as error:
        return {part: {"failed": f"{type(error).__name__}: {error}"}}
    return {**figures, f"{part}_seconds": round(time.monotonic() - began, 1)}


def table(figures: Figures, targets: Targets) -> str:
    """One line per figure, with its target and whether it is met."""
    lines = [f"{'figure':48}{'measured':>14}  target"]
    for name, value in flat(figures):
        text = f"{value:>14,}" if isinstance(value, (int, float)) else f"{value!s:>14}"
        lines.append(f"{name:48}{text}  {verdict(name, value, targets)}".rstrip())
    return "\n".join(lines)


def flat(figures: Figures, prefix: str = "") -> Iterator[tuple[str, Any]]:  # Any: a number, a text or a list of them
    """Names with dots, and their values; what is not given to be shown (`_…`) is left out."""
    for name, value in figures.items():
        if name.startswith("_"):
            continue
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def verdict(name: str, value: Any, targets: Targets) -> str:  # Any: as `flat` gives it
    """The target of a figure, and whether it is met or by how much it is missed."""
    if name not in targets or isinstance(value, str):
        return ""
    sign, target = targets[name]
    return f"{sign} {target:,}: " + ("met" if SIGNS[sign](value, target) else f"MISSED by {abs(value - target):.3g}")
