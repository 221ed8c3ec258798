"""The frame of every bench: parts in processes of their own, figures beside their targets, a table and `bench/out/NAME.json`.

A module `bench/NAME/__main__.py` holds a `BENCH`: parts, sizes and targets, named without an import of what they measure. Then
`python -m bench.NAME [--only PART]… [--SIZE N]…` measures, `make bench-NAME` sets up first, and `python -m bench` lists
them all. No part pays for another's memory and threads; one that breaks has failed, and the others are measured. A part
that was not asked for keeps the figures of its last run, each with its date.
"""

import argparse
import asyncio
import importlib
import inspect
import json
import operator
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "bench" / "out"
Figures = dict[str, Any]  # numbers, and objects of them
Targets = Mapping[str, tuple[str, float]]
Measure = Callable[[], Figures]
SIGNS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
TIMEOUT_S = 3 * 3600.0
DIGITS = 4
"""The digits of a figure that say something; counts keep all of theirs."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A room's measurements."""

    name: str
    about: str
    """The docstring of its module."""
    parts: Mapping[str, str]
    """Part -> `module:function`, asynchronous or not, that takes some of the sizes by their names and returns figures."""
    sizes: Mapping[str, float] = field(default_factory=dict)
    """Flags of the command line, each with its default."""
    targets: Targets = field(default_factory=dict)
    one_thread: bool = True
    """Libraries of numbers have one thread, where `OMP_NUM_THREADS` says nothing."""
    learning: tuple[str, ...] = ()
    """Parts that run for long, and so with `--learn` or by their names alone."""

    def main(self) -> None:
        """Exits with 0: measured, whatever the figures say; 1: a part could not be."""
        options = vars(self.parser().parse_args())
        sizes = {name: options[name] for name in self.sizes}
        parts = options["only"] or [part for part in self.parts if part not in self.learning or options["learn"]]
        measures = {part: partial(measured, part, self.parts[part], sizes, self.one_thread) for part in parts}
        sys.exit(run(self.name, measures, self.targets, as_json=options["json"], resume=options["resume"]))

    def parser(self) -> argparse.ArgumentParser:
        """Returns the parser of its command line."""
        parser = argparse.ArgumentParser(
            prog=f"bench.{self.name}", description=self.about, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        parser.add_argument("--only", "--part", choices=self.parts, action="append", help="this part; may be repeated")
        parser.add_argument("--json", action="store_true", help="the JSON on stdout instead of the table")
        parser.add_argument("--resume", action="store_true", help="what the run before left, or what failed in it")
        parser.set_defaults(learn=False)
        if self.learning:
            parser.add_argument("--learn", action="store_true", help=f"these, too: {', '.join(self.learning)}")
        for name, default in self.sizes.items():
            flag = f"--{name.replace('_', '-')}"
            parser.add_argument(flag, type=type(default), default=default, help=f"{default} if not given")
        return parser


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


def measured(part: str, function: str, sizes: Mapping[str, float], one_thread: bool = True) -> Figures:
    """The figures of a part; `{"PART": {"failed": why}}` where it broke."""
    command = [sys.executable, "-m", "bench.report", function, json.dumps(sizes)]
    environment = {**({"OMP_NUM_THREADS": "1"} if one_thread else {}), **os.environ}
    began = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=TIMEOUT_S
        )
        figures: Figures = json.loads(done.stdout.strip().splitlines()[-1])
    except (subprocess.SubprocessError, ValueError, IndexError) as error:
        return {part: {"failed": f"{type(error).__name__}: {error}"}}
    return {**figures, f"{part}_seconds": round(time.monotonic() - began, 1)}


def call(function: str, sizes: Mapping[str, float]) -> Figures:
    """Measures here and now, with those of the sizes that the function takes."""
    module, _, name = function.partition(":")
    measure = getattr(importlib.import_module(module), name)
    taken = inspect.signature(measure).parameters
    figures = measure(**{size: value for size, value in sizes.items() if size in taken})
    return rounded(asyncio.run(figures) if inspect.iscoroutine(figures) else figures)


def rounded(value: Any) -> Any:  # Any: JSON
    """The same with floats of few digits."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(each) for each in value]
    if not isinstance(value, float):
        return value
    return round(value) if abs(value) >= 10**DIGITS else float(f"{value:.{DIGITS}g}")


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


if __name__ == "__main__":
    print("\n" + json.dumps(call(sys.argv[1], json.loads(sys.argv[2]))))
