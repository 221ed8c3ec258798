"""The result of a demo: one JSON object, a table, a plot and two episodes; pure but for the plot's file."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from claw_r1.claw.demo.settings import STALENESS_MAX
from claw_r1.claw.workers.idle import IdleShares
from claw_r1.schemas.events import BatchTrained, TrajectoryRecord
from claw_r1.schemas.http import Channel

REWARD_FIRST_MAX = 0.25
REWARD_LAST_MIN = 0.90
GREEDY_BEFORE_MAX = 0.1
GREEDY_AFTER_MIN = 0.9
GAP_MAX = 1e-4
FIRST_TRAJECTORIES_MIN = 64
CONTROL_REWARD_MAX = 0.30
CONTROL_VERSIONS_MIN = 20
LAST_BATCHES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result that `claw demo --json` prints last."""

    reward: str
    """The source of the rewards: `--reward`."""
    protocol: str
    """The protocol of its agents: `--protocol`."""
    reward_first: float | None
    reward_last: float | None
    greedy_before: float
    greedy_after: float
    versions: int
    batches: int
    calls_captured: int
    calls_replied: int
    calls_unanswered: int
    """Calls that no agent saw a reply of (a stop cut it off, its gateway was killed): they
    may be captured or not."""
    calls_by_worker: dict[str, int]
    workers: int
    idle: IdleShares
    groups_trained: int
    max_logprob_gap: float | None
    stale_max: int
    dead_letters: int
    seconds: float
    plot: str


@dataclass(frozen=True, slots=True)
class DemoTarget:
    """One line of the summary table: a measured value beside what it should be."""

    name: str
    figure: str
    limit: str
    met: bool


def reward_first(trajectories: list[TrajectoryRecord], run_id: str) -> float | None:
    """Mean return of the training trajectories sampled entirely by version 0; None when fewer than 64 are there."""
    returns = [
        t.return_total or 0.0
        for t in trajectories
        if t.policy_run_id == run_id
        and t.channel == Channel.TRAIN
        and t.max_version == 0
        and t.status in ("completed", "failed")
    ]
    return sum(returns) / len(returns) if len(returns) >= FIRST_TRAJECTORIES_MIN else None


class OfBatches(TypedDict):
    """The part of a result that the run's BatchTrained events hold."""

    reward_last: float | None
    versions: int
    batches: int
    groups_trained: int
    max_logprob_gap: float | None
    stale_max: int


def of_batches(batches: list[BatchTrained]) -> OfBatches:
    """Sums up the run's batches, in order of their sequence."""
    last = [batch.metrics["reward"] for batch in batches[-LAST_BATCHES:]]
    gaps = [batch.metrics["max_logprob_gap"] for batch in batches if "max_logprob_gap" in batch.metrics]
    return OfBatches(
        reward_last=_mean(last) if last else None,
        versions=len({batch.version for batch in batches}),
        batches=len(batches),
        groups_trained=round(sum(batch.metrics["groups"] for batch in batches)),
        max_logprob_gap=max(gaps, default=None),
        stale_max=round(max((batch.metrics["staleness_max"] for batch in batches), default=0)),
    )


def targets(r: Result, *, control: bool, staleness_max: int = STALENESS_MAX, exact: bool = True) -> list[DemoTarget]:
    """Returns the targets that a run must have reached; a control run (learning rate 0) must not have learnt.

    Where the rewards are a model's (not `exact`), nothing is asked of them, but the greedy score must at least double.
    """
    last = f"reward, last {LAST_BATCHES} batches"
    captured = f"{r.calls_captured} / {r.calls_replied}"
    surplus = r.calls_captured - r.calls_replied
    if surplus:
        captured += f" + {r.calls_unanswered} unanswered"
    shared = [
        at_most("reward, version 0 only", r.reward_first, REWARD_FIRST_MAX),
        at_most("greedy before", r.greedy_before, GREEDY_BEFORE_MAX),
        at_least("workers that took calls", len(r.calls_by_worker), r.workers, form="d"),
        DemoTarget("calls captured / replied", captured, "equal", 0 <= surplus <= r.calls_unanswered),
        at_most("engine against trainer, |Δ logprob|", r.max_logprob_gap, GAP_MAX, form=".1e"),
        at_most("staleness, highest", r.stale_max, staleness_max, form="d"),
        at_most("dead letters", r.dead_letters, 0, form="d"),
    ]
    if control:
        must_not_learn = at_most(f"{last} (control)", r.reward_last, CONTROL_REWARD_MAX)
        return [*shared, must_not_learn, at_least("versions", r.versions, CONTROL_VERSIONS_MIN, form="d")]
    if not exact:
        return [*shared[1:], at_least("greedy after", r.greedy_after, 2 * max(r.greedy_before, GREEDY_BEFORE_MAX))]
    learnt = at_least(last, r.reward_last, REWARD_LAST_MIN)
    return [*shared, learnt, at_least("greedy after", r.greedy_after, GREEDY_AFTER_MIN)]


def at_most(name: str, value: float | None, limit: float, *, form: str = ".3f") -> DemoTarget:
    """Met when there is a value and it is not above the limit."""
    return DemoTarget(name, as_figure(value, form), f"≤ {limit:g}", value is not None and value <= limit)


def at_least(name: str, value: float | None, limit: float, *, form: str = ".3f") -> DemoTarget:
    """Met when there is a value and it is not below the limit."""
    return DemoTarget(name, as_figure(value, form), f"≥ {limit:g}", value is not None and value >= limit)


def as_figure(value: float | None, form: str) -> str:
    """A figure as the table has it; too little data is no figure."""
    return "too few to say" if value is None else format(value, form)


def plot(batches: list[BatchTrained], path: Path, *, title: str) -> Path:
    """Draws reward and staleness over batches into a PNG of about 30 kB."""
    import matplotlib as mpl  # a second of import that only the end of a run needs

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    rewards = [batch.metrics["reward"] for batch in batches]
    figure, (above, below) = plt.subplots(2, 1, figsize=(7, 5), sharex=True, height_ratios=[3, 1], layout="constrained")
    above.plot(rewards, color="tab:blue", alpha=0.4, label="batch mean")
    above.plot(
        [_mean(rewards[max(0, i - 4) : i + 1]) for i in range(len(rewards))],
        color="tab:blue",
        label="mean of 5 batches",
    )
    above.set(ylabel="reward per episode", ylim=(0, 1.05), title=title)
    above.axhline(REWARD_LAST_MIN, color="grey", linewidth=0.8, linestyle="--", label=f"target {REWARD_LAST_MIN}")
    above.legend(loc="lower right")
    below.bar(range(len(batches)), [batch.metrics.get("staleness_mean", 0.0) for batch in batches], color="tab:orange")
    below.set(xlabel="batch", ylabel="staleness\n(versions)")
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
