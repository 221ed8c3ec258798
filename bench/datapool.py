"""The pool measured: `make bench-datapool`, or `python -m bench.datapool [--only PART]`. A table and bench/out/datapool.json.

CPU seconds are those of the process that does the work, so that a busy machine shows little. Parts: folds, faust,
storage, view, rebuild, reading, flushes; a part that was not asked for keeps the figures of its last run.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent / "out" / "datapool.json"
Figures = dict[str, Any]  # numbers, and one level of objects
TARGETS: Mapping[str, tuple[str, float]] = {
    "fold_facts_per_cpu_s": (">=", 6000),
    "engine.faust.facts_per_cpu_s": (">=", 2000),
    "batch_256x1536_ms": ("<=", 20),
    "batch_256x5120_ms": ("<", 60),
    "storage_ratio_to_linear": ("<=", 1.3),
    "rebuild_ratio_to_decode": ("<=", 3.5),
    "view_seconds_100k": ("<=", 18),
    "query_ms_100k": ("<", 100),
    "select_idle_cpu_s_100k": ("<=", 0.05),
    "flushes_trajectory.ratio": ("<=", 1.5),
    "flushes_group.ratio": ("<=", 1.5),
}


def _folds() -> Figures:
    from bench.datapool_folds import folds

    return dict(folds())


def _faust() -> Figures:
    from bench.datapool_folds import faust

    return {"engine": {"faust": faust()}}


def _storage() -> Figures:
    from bench.datapool_storage import measure

    return dict(measure())


def _view() -> Figures:
    from bench.datapool_view import measure

    return dict(measure())


def _reading() -> Figures:
    from bench.datapool_reading import measure

    return dict(measure())


def _flushes() -> Figures:
    from bench.datapool_flushes import measure

    return dict(measure())


def _rebuild() -> Figures:
    from bench.datapool_rebuild import measure

    return dict(measure())


PARTS: Mapping[str, Callable[[], Figures]] = {
    "folds": _folds,
    "storage": _storage,
    "view": _view,
    "faust": _faust,
    "rebuild": _rebuild,
    "reading": _reading,
    "flushes": _flushes,
}


def table(figures: Figures) -> str:
    """One line per figure, with its target and whether it is met."""
    lines = [f"{'figure':34}{'measured':>14}  target"]
    for name, value in _flat(figures):
        lines.append(f"{name:34}{value:>14,}  {_verdict(name, value)}".rstrip())
    return "\n".join(lines)


def _flat(figures: Figures, prefix: str = "") -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for name, value in figures.items():
        found += _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [(f"{prefix}{name}", value)]
    return found


def _verdict(name: str, value: float) -> str:
    if name not in TARGETS:
        return ""
    sign, target = TARGETS[name]
    met = {">=": value >= target, "<=": value <= target, "<": value < target}[sign]
    return f"{sign} {target:,}: {'met' if met else 'MISSED'}"


def main(argv: Sequence[str] | None = None) -> int:
    """0: measured, whatever the figures say."""
    parser = argparse.ArgumentParser(prog="bench.datapool", description=__doc__)
    parser.add_argument("--only", choices=PARTS, action="append", help="measure this part (may be given again)")
    asked = parser.parse_args(argv).only or list(PARTS)
    figures: Figures = {}
    OUT.parent.mkdir(exist_ok=True)
    for name in asked:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        figures |= PARTS[name]()
        kept: Figures = json.loads(OUT.read_text()) if OUT.exists() else {}
        OUT.write_text(json.dumps(kept | figures, indent=1) + "\n")
    print(table(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
