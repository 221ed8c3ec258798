"""Learning under staleness: batches until the mean of the last five reaches .9, verbs in one process.

Lag n: each batch was sampled by the weights of n versions before. A cell is a lag, a way and a seed; what is compared has as many
optimizer steps. `batches_lost`: by way, the most by which its median is above that of its counterpart, over the lags.

Each cell is a line of bench/out/trainer_staleness.jsonl as soon as it is measured, and is not measured again while the code
that it depends on is the same: the bench goes on where it was stopped. `python -m bench.trainer_staleness` measures what is missing
and prints the table, `--known` prints it of the cells that there are.

One cell: `python -c "from bench.trainer_staleness import batches; print(batches(4, 'tis', 0))"`.
"""

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import torch

from bench import verbs
from bench.in_process import InProcessLoop, batches_until
from bench.report import OUT, ROOT
from claw_r1.trainer.compose import learner_of

Cell = tuple[int, str, int]
"""Lag, way, seed."""
Play = Callable[[int, str, int], int]
"""A cell -> its batches."""
LAGS, SEEDS = (0, 2, 4), (0, 1, 2)
STEPS_2X2 = {"minibatches": 2, "epochs": 2}
OFF_POLICY: Mapping[str, Mapping[str, Any]] = {  # Any: settings of any field
    "none": {},
    "tis": {"objective": {"correction": "tis"}},
    "icepop": {"objective": {"correction": "icepop"}},
    "stale_negatives": {"objective": {"stale_negatives": 0.2}},
    "cispo": {"loss": "cispo"},
    "decoupled": {"objective": {"correction": "decoupled"}},
    "decoupled_negatives": {"objective": {"correction": "decoupled", "stale_negatives": 0.2}},
}
"""Name -> settings. TIS has the cap 2, CISPO 1.28, IcePop the band from .5 to 5."""
WAYS: Mapping[str, Mapping[str, Any]] = {  # Any: as above
    **{name: way for name, way in OFF_POLICY.items() if not name.startswith("decoupled")},
    **{
        f"{name}_2x2": {**way, "objective": {**way.get("objective", {}), **STEPS_2X2}}
        for name, way in OFF_POLICY.items()
        if name != "tis"
    },
}
"""With one step per batch decoupled PPO is TIS."""
COUNTERPARTS = {name: "none_2x2" if name.endswith("_2x2") else "none" for name in WAYS if not name.startswith("none")}
GOAL = 0.9
BATCHES_MAX = 60
CELLS = OUT / "trainer_staleness.jsonl"
CODE = (
    "trainer/algorithms/*.py",
    "trainer/learn/**/*.py",
    "datapool/batch/*.py",
    "bench/in_process.py",
    "bench/verbs.py",
)
"""The files that a cell depends on."""


def measure() -> dict[str, object]:
    """Batches by lag and way, one per seed; a run that never reaches the goal counts `BATCHES_MAX` + 1."""
    torch.set_num_threads(1)
    return {"staleness": figures_of(completed(CELLS, batches))}


def completed(path: Path, play: Play) -> dict[Cell, int]:
    """Returns all cells: those that the file has, and those that
    are played now, each of them kept there at once."""
    known = cells(path)
    path.parent.mkdir(exist_ok=True)
    _mend(path)
    for cell in cells_wanted():
        if cell not in known:
            known[cell] = _kept(path, cell, play)
    return known


def _mend(path: Path) -> None:
    """Ends the line that a kill cut off."""
    if path.exists() and not path.read_text().endswith("\n"):
        path.write_text(path.read_text() + "\n")


def _kept(path: Path, cell: Cell, play: Play) -> int:
    began, number = time.monotonic(), play(*cell)
    lag, name, seed = cell
    about = {
        "lag": lag,
        "way": name,
        "seed": seed,
        "batches": number,
        "seconds": round(time.monotonic() - began, 1),
        "code": code(name),
    }
    with path.open("a") as lines:
        lines.write(json.dumps(about) + "\n")
    print(f"staleness: {about}", file=sys.stderr, flush=True)
    return number


def cells_wanted() -> Iterator[Cell]:
    """Yields all cells; the seeds of one way at one lag come together."""
    return ((lag, name, seed) for lag in LAGS for name in WAYS for seed in SEEDS)


def cells(path: Path) -> dict[Cell, int]:
    """Returns the cells that were measured by the code as it is; a line that a kill cut off is none."""
    known: dict[Cell, int] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            about = json.loads(line)
        except ValueError:
            continue
        if about["way"] in WAYS and about["code"] == code(about["way"]):
            known[about["lag"], about["way"], about["seed"]] = about["batches"]
    return known


def figures_of(known: Mapping[Cell, int]) -> dict[str, object]:
    """The batches of all cells, and by how many the median of each way is behind its counterpart's."""
    figures = {f"lag_{lag}": {name: [known[lag, name, seed] for seed in SEEDS] for name in WAYS} for lag in LAGS}
    lost = {
        name: max(median(by[name]) - median(by[other]) for by in figures.values())
        for name, other in COUNTERPARTS.items()
    }
    return {**figures, "batches_lost": lost}


@cache  # of the code that was imported
def code(way: str) -> str:
    """Returns a digest of the settings of a way and of the files that the cells depend on."""
    digest = hashlib.sha256(json.dumps([WAYS[way], GOAL, BATCHES_MAX], sort_keys=True).encode())
    for path in sorted(path for pattern in CODE for path in ROOT.glob(pattern)):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def batches(lag: int, way: str, seed: int) -> int:
    """Until the goal."""
    with verbs.settings(seed, **WAYS[way]) as settings:
        rewards = InProcessLoop(settings, learner_of(settings), verbs.verbs, lag).run(BATCHES_MAX, GOAL)
    return batches_until(rewards, GOAL) or BATCHES_MAX + 1


def table(known: Mapping[Cell, int]) -> str:
    """A line per way and a column per lag: the median and the band of the seeds. What has not all of its seeds
    is left out."""
    lines = ["| way |" + "".join(f" lag {lag} |" for lag in LAGS), "|---|" + "---|" * len(LAGS)]
    for name in WAYS:
        row = [[known[lag, name, seed] for seed in SEEDS if (lag, name, seed) in known] for lag in LAGS]
        lines.append(f"| `{name}` |" + "".join(f" {band(values)} |" for values in row))
    return "\n".join(lines)


def band(values: list[int]) -> str:
    """Returns `median (least to most)`."""
    if len(values) < len(SEEDS):
        return ""
    low, middle, high = (
        f">{BATCHES_MAX}" if value > BATCHES_MAX else str(value) for value in (min(values), median(values), max(values))
    )
    return f"{middle} ({low} to {high})"


if __name__ == "__main__":
    if "--known" not in sys.argv:
        measure()
    print(table(cells(CELLS)))
