"""The curves of runs as one PNG: reward, evaluation, staleness, KL, entropy, replies and
waiting over the batches."""

import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Any
from urllib.parse import quote

from claw_r1.claw.answers import Answer
from claw_r1.claw.broker_log import log_for_reading
from claw_r1.claw.home import claw_home
from claw_r1.consumers.runs.read import read_named
from claw_r1.consumers.runs.summary import WINDOW
from claw_r1.datapool.runs import Run

Axes = Any  # matplotlib's, which has no types
DPI = 110
NAME_CHARACTERS_MAX = 251
"""With the ending, as many bytes as file systems take."""
CUT_CHARACTERS = 120
LABELS = (
    "reward per episode",
    "evaluation",
    "staleness\n(versions)",
    "KL (k3)\nengine, trainer",
    "entropy",
    "tokens\nper reply",
    "share of replies,\nepisodes",
    "seconds\nper batch",
)
HEIGHTS = (3, 2, 1, 1, 1, 1, 1, 1)
ENVIRONMENT = re.compile(r"env\.(.+)\.reward")
DASHES = (":", "-.", (0, (1, 3)), (0, (5, 1)), (0, (3, 1, 1, 1)))
METRICS = (
    (2, "staleness_mean", "mean", "-"),
    (2, "staleness_max", "oldest", ":"),
    (3, "kl_k3", "k3", "-"),
    (4, "entropy", "entropy", "-"),
    (5, "response_tokens_mean", "mean", "-"),
    (5, "response_tokens_p95", "p95", ":"),
    (6, "truncated_share", "cut off", "-"),
    (6, "failed_share", "failed", ":"),
    (7, "wait_s", "waiting", "-"),
    (7, "train_s", "training", ":"),
)
"""Panel, metric of `BatchTrained`, what its line is called there, and its style."""


def run_plot(names: Sequence[str], out: Path | None, *, prefix: str) -> Answer:
    """Draws the runs and tells where the picture lies. Raises NoSuchRun."""
    with log_for_reading(prefix) as settings:
        runs = read_named(settings, dict.fromkeys(names))
    path = out or claw_home() / "plots" / file_name([run.run_id for run in runs])
    path.parent.mkdir(parents=True, exist_ok=True)
    draw(runs, path)
    answer = {"plot": str(path), "runs": {run.run_id: len(run.trained) for run in runs}}
    return Answer(answer, str(path))


def file_name(run_ids: Sequence[str]) -> str:
    """Returns the name of a picture of these runs, which a file can have: a long one is cut, and told apart by its digest."""
    name = "+".join(quote(run_id, safe="") for run_id in run_ids)
    if len(name) > NAME_CHARACTERS_MAX:
        name = f"{name[:CUT_CHARACTERS]}-{sha256(name.encode()).hexdigest()[:12]}"
    return f"{name}.png"


def draw(runs: Sequence[Run], path: Path) -> None:
    """Writes the PNG."""
    figure = figure_of(runs)
    figure.savefig(path, dpi=DPI)
    figure.clear()


def figure_of(runs: Sequence[Run]) -> Any:  # Any: as above
    """The picture. A colour is a run, named above the panels; the legends inside say which line is what."""
    import matplotlib as mpl  # a second of import that only a picture needs

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(
        len(LABELS), 1, figsize=(8, 16), sharex=True, height_ratios=HEIGHTS, layout="constrained"
    )
    colours = plt.rcParams["axes.prop_cycle"].by_key()["color"]
    for number, run in enumerate(runs):
        _draw_run(panels, run, colours[number % len(colours)])
    names = [figure.axes[0].plot([], [], color=colours[n % len(colours)], linewidth=3)[0] for n in range(len(runs))]
    figure.legend(names, [run.run_id for run in runs], loc="outside upper center", ncols=2, fontsize="small")
    for panel, label in zip(panels, LABELS, strict=True):
        panel.set_ylabel(label)
        panel.grid(alpha=0.3)
        handles = dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True))  # each kind of line once
        if len(handles) > 1:
            panel.legend(handles.values(), handles.keys(), fontsize="small", loc="best", framealpha=0.5)
        elif not handles:
            panel.text(0.5, 0.5, "nothing recorded", transform=panel.transAxes, ha="center", va="center", color="grey")
    for panel in panels[2:]:
        panel.set_ylim(bottom=0)
    panels[-1].set_xlabel("batch")
    plt.close(figure)
    return figure


def _draw_run(panels: Sequence[Axes], run: Run, colour: str) -> None:
    rewards = run.series("reward")
    smooth = [
        (batch, fmean(value for _, value in rewards[max(0, n - WINDOW + 1) : n + 1]))
        for n, (batch, _) in enumerate(rewards)
    ]
    _line(panels[0], rewards, "batch", color=colour, alpha=0.35, linewidth=1)
    _line(panels[0], smooth, f"mean of {WINDOW} batches", color=colour)
    _environments(panels[0], run, colour)
    _evaluation(panels[1], run, colour)
    for panel, metric, label, style in METRICS:
        _line(panels[panel], run.series(metric), label, color=colour, linestyle=style, linewidth=1.2)


def _environments(panel: Axes, run: Run, colour: str) -> None:
    """The mean reward of each environment that has a metric."""
    names = {name for batch in run.batches for name in batch.metrics}
    matches = filter(None, map(ENVIRONMENT.fullmatch, sorted(names)))
    for number, match in enumerate(matches):
        style = {"linestyle": DASHES[number % len(DASHES)], "linewidth": 1}
        _line(panel, run.series(match[0]), match[1], color=colour, **style)


def _evaluation(panel: Axes, run: Run, colour: str) -> None:
    """A version stands at the batch that made it, the initial weights one before the first batch."""
    events = [run.evaluations[version] for version in sorted(run.evaluations)]
    sequence = {batch.version: batch.sequence for batch in run.batches}
    place = {event.version: sequence.get(event.version, event.version - 1) for event in events}
    greedy = [(place[event.version], event.greedy) for event in events if event.greedy is not None]
    _line(panel, greedy, "greedy", color=colour, marker="o", markersize=4)
    for k in {max(event.pass_at, key=int) for event in events if event.pass_at}:
        shares = [(place[event.version], event.pass_at[k]) for event in events if k in event.pass_at]
        _line(panel, shares, f"pass@{k}", color=colour, linestyle=":", marker="^", markersize=4)
    if (best := run.best) is not None and best.greedy is not None:
        at = {"textcoords": "offset points", "xytext": (0, 6), "ha": "center", "color": colour}
        panel.annotate("best", (place[best.version], best.greedy), **at)


def _line(panel: Axes, series: Sequence[tuple[int, float]], label: str, **style: object) -> None:
    if series:
        panel.plot(*zip(*series, strict=True), label=label, **style)
