"""The metrics of the episodes of a plan: how long, how whole and
how good they were; of all, and of each environment. Pure.

Invariant: names are bounded, whatever tags and slots are called:
`ENVIRONMENTS_MAX` environments and one for the others, and
`SLOTS_MAX` slots.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

import numpy as np

from claw_r1.schemas.events import BatchAssembled, EpisodeFigures, PlannedTrajectory
from claw_r1.trainer.learn.examples import ENVIRONMENTS_MAX

EpisodeMetrics = dict[str, float]
PlannedEpisode = tuple[PlannedTrajectory, EpisodeFigures]
OTHER = "other"
"""All other environments together."""
SLOTS_MAX = 16
"""Reward slots of a batch with a mean of their own, likewise."""
NAME_MAX = 64
"""Characters of a name of a tag or slot in that of a metric."""
BINS = 10
"""Equal parts of [reward_min, reward_max] that returns are counted
in; of the last one both ends count."""
ROUNDING = 1e-9
"""A return that is nearer to the next bin, by parts of a bin, is on
their boundary and counts there: 0.3 / 0.1 is 2.9999…"""
QUANTILES = (10, 50, 90)


def episode_metrics(plan: BatchAssembled) -> EpisodeMetrics:
    """Metrics by name. A plan that is older than these figures has the distribution of its returns alone."""
    episodes = [(each, each.figures) for each in plan.trajectories if each.figures is not None]
    metrics = distribution([each.reward for each in plan.trajectories])
    by_name = by_environment(episodes, environments_of(plan))
    return metrics | of_episodes(episodes) | by_slot(episodes) | by_name


def of_episodes(episodes: Sequence[PlannedEpisode]) -> EpisodeMetrics:
    """Lengths in sampled tokens, shares and times of some episodes."""
    if not episodes:
        return {}
    figures = [each for _, each in episodes]
    turns = [len(each.response_lengths) for each in figures]
    metrics = {
        "turns_mean": fmean(turns),
        "turns_max": float(max(turns)),
        "failed_share": fmean(each.status != "completed" for each in figures),
    }
    return metrics | of_times(figures) | of_responses(figures)


def of_times(figures: Sequence[EpisodeFigures]) -> EpisodeMetrics:
    """The mean seconds of those whose times are known."""
    seconds = [each.seconds for each in figures if each.seconds is not None]
    return {"episode_s_mean": fmean(seconds)} if seconds else {}


def of_responses(figures: Sequence[EpisodeFigures]) -> EpisodeMetrics:
    """Mean and percentiles of the lengths, share cut off."""
    lengths = [length for each in figures for length in each.response_lengths]
    if not lengths:
        return {}
    return {
        "episode_tokens_mean": sum(lengths) / len(figures),
        "response_tokens_mean": fmean(lengths),
        "response_tokens_p50": float(np.percentile(lengths, 50)),
        "response_tokens_p95": float(np.percentile(lengths, 95)),
        "truncated_share": sum(each.truncated for each in figures) / len(lengths),
    }


def distribution(returns: Sequence[float]) -> EpisodeMetrics:
    """`reward_p10`, `_p50`, `_p90`, and how many returns lie in each of `BINS` bins."""
    if not returns or not np.isfinite(returns).all():
        return {}
    metrics = {f"reward_p{q}": float(np.percentile(returns, q)) for q in QUANTILES}
    width = (max(returns) - min(returns)) / BINS or 1.0  # equal returns: all of them are in the first bin
    places = ((np.asarray(returns) - min(returns)) / width + ROUNDING).astype(int).clip(max=BINS - 1)
    return metrics | {f"return_bin_{n}": float((places == n).sum()) for n in range(BINS)}


def by_slot(episodes: Iterable[PlannedEpisode]) -> EpisodeMetrics:
    """`slot.SOURCE/NAME`: mean over the episodes that have one."""
    values: dict[str, list[float]] = defaultdict(list)
    for _, figures in episodes:
        for name, value in figures.rewards.items():
            values[name[:NAME_MAX]].append(value)
    return {f"slot.{name}": fmean(values[name]) for name in most_frequent(values, SLOTS_MAX)}


def environments_of(plan: BatchAssembled) -> tuple[str, ...]:
    """The environments of a batch with metrics of their own.

    They are those with the most episodes, of equally many the first by name; then `OTHER`, where there are more. Nothing
    where no episode names one.
    """
    groups: dict[str, list[EpisodeFigures]] = defaultdict(list)
    for each in plan.trajectories:
        if each.figures is not None:
            groups[each.figures.environment[:NAME_MAX]].append(each.figures)
    own = {name: groups[name] for name in groups if name not in ("", OTHER)}
    kept = most_frequent(own, ENVIRONMENTS_MAX)
    return (*kept, OTHER) if kept and len(kept) < len(groups) else tuple(kept)


def environment_index(figures: EpisodeFigures | None, environments: Sequence[str]) -> int:
    """The index of an episode's environment in `environments_of` its batch; 0 where there are none."""
    name = "" if figures is None else figures.environment[:NAME_MAX]
    return environments.index(name) if name in environments else max(0, len(environments) - 1)


def by_environment(episodes: Sequence[PlannedEpisode], environments: Sequence[str]) -> EpisodeMetrics:
    """`env.NAME.…`: reward, share of the episodes, and the metrics of `of_episodes`."""
    groups: dict[str, list[PlannedEpisode]] = {name: [] for name in environments}
    for episode in episodes if environments else ():
        groups[environments[environment_index(episode[1], environments)]].append(episode)
    metrics = EpisodeMetrics()
    for name, own in groups.items():
        metrics |= {f"env.{name}.{metric}": value for metric, value in _with_share(own, len(episodes)).items()}
    return metrics


def _with_share(episodes: Sequence[PlannedEpisode], total: int) -> EpisodeMetrics:
    if not episodes:
        return {}
    reward = fmean(trajectory.reward for trajectory, _ in episodes)
    return {"reward": reward, "share": len(episodes) / total, **of_episodes(episodes)}


def most_frequent(values: Mapping[str, Sequence[object]], most: int) -> list[str]:
    """Names by how many values they have, of equally many by name."""
    return sorted(values, key=lambda name: (-len(values[name]), name))[:most]
