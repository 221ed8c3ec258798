"""The trainer measured: `make bench-trainer` [ARGS=--learn], or `python -m bench.trainer [--only PART]…`. A table and bench/out/trainer.json.

Each part is a module `bench/trainer_PART.py` with `measure() -> dict`, and runs in a process of its own, so that no part
pays for another's memory and threads. Figures are CPU seconds and ratios of both sides in one run, repeats interleaved,
medians. The parts that learn (from `verbs` on) run with `--learn`, or when they are named; a part that was not asked for keeps the
figures of its last run, each with its date.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OUT = Path(__file__).parent / "out" / "trainer.json"
Figures = dict[str, Any]  # numbers, and objects of them
MEASURED = ("trees", "step", "publish", "ranks", "history")
LEARNING = ("verbs", "staleness", "long_episodes", "critic", "credit")
Targets = Mapping[str, tuple[str, float]]
TARGETS: Targets = {
    "tree_ratio": (">=", 2.4),
    "call_rows_ratio": (">=", 12),
    "head_ratio": (">=", 3),
    "head_peak_mb": ("<=", 400),
    "zero_advantage_ratio": ("<=", 0.4),
    "deepspeed_overhead": ("<=", 1.1),
    "publish_ratio": ("<=", 2),
    "ranks_speedup": (">=", 1.5),
    "history_ratio": ("<=", 1.5),
    "verbs.share_within_band": (">=", 0.9),
    "staleness.batches_lost.decoupled_2x2": ("<=", 2),
    "long_episodes.tokens": (">=", 0.9),
    "critic.reward_last_min": (">=", 0.85),
    "credit.reward_ahead": (">", 0),
}
TIMEOUT_S = 2400.0
CHILD = (
    "import json, importlib, sys; measure = getattr(importlib.import_module(sys.argv[1]), sys.argv[2]);"
    "print('\\n' + json.dumps(measure(*map(int, sys.argv[3:]))))"
)


def measured(part: str, module: str | None = None, function: str = "measure", *arguments: int) -> Figures:
    """The figures of a part; `{"PART": {"failed": why}}` where it broke, so that the others still run."""
    command = [sys.executable, "-c", CHILD, module or f"bench.trainer_{part}", function, *map(str, arguments)]
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


def table(figures: Figures, targets: Targets = TARGETS) -> str:
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
    """The target of a figure, and whether it is met."""
    if name not in targets or isinstance(value, str):
        return ""
    sign, target = targets[name]
    met = {">=": value >= target, "<=": value <= target, ">": value > target}[sign]
    return f"{sign} {target:,}: {'met' if met else 'MISSED'}"


def main(argv: Sequence[str] | None = None) -> int:
    """0: measured, whatever the figures say; 1: a part could not be measured."""
    parser = argparse.ArgumentParser(prog="bench.trainer", description=__doc__)
    parser.add_argument("--only", choices=(*MEASURED, *LEARNING), action="append", help="this part; may be repeated")
    parser.add_argument("--learn", action="store_true", help="the parts that learn, too")
    parser.add_argument("--json", action="store_true", help="the JSON on stdout instead of the table")
    options = parser.parse_args(argv)
    parts = options.only or [*MEASURED, *(LEARNING if options.learn else ())]
    kept: Figures = json.loads(OUT.read_text()) if OUT.exists() else {}
    failed = False
    OUT.parent.mkdir(exist_ok=True)
    for part in parts:
        print(f"measuring {part} ...", file=sys.stderr, flush=True)
        figures = measured(part)
        broke = "failed" in figures.get(part, {})
        failed = failed or broke
        kept.pop(part, None)
        kept |= figures if broke else {**figures, "_dates": {**kept.get("_dates", {}), part: time.strftime("%Y-%m-%d")}}
        OUT.write_text(json.dumps(kept, indent=1) + "\n")
    print(json.dumps(kept) if options.json else table(kept))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
