"""The description of runs as JSON: rows of a list, one run whole, two runs side by side. Pure."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

from claw_r1.datapool.runs import Run, trained_us
from claw_r1.schemas.events import BatchTrained, VersionEvaluated
from claw_r1.schemas.json_values import JsonDict

WINDOW = 5
"""Batches whose mean is called the first, last or best reward."""
POINTS = 10
"""Parts of equal length into which a curve is summed up."""
OWN_PLACE = frozenset({"run_id", "out_dir", "warnings_file", "offer_port"})
"""Settings in which two runs differ because they are two."""
EPISODES = (
    "response_tokens_mean",
    "response_tokens_p95",
    "truncated_share",
    "turns_mean",
    "failed_share",
)
"""Metrics that say how the episodes of a batch went."""
COMPARED = (
    "reward",
    "zero_variance_share",
    "staleness_mean",
    "entropy",
    "kl_k3",
    "clip_share",
    "ess",
    "grad_norm",
    "trained_tokens",
    *EPISODES,
    "wait_s",
    "train_s",
)
BY_NAME = ("env.", "slot.")
"""Beginnings of metrics that environments and reward slots name."""


def row(run: Run, now_us: int) -> JsonDict:
    """A line of the list. `age_s`: seconds since the last batch."""
    last = run.batches[-1] if run.trained else None
    return {
        "run": run.run_id,
        "model": run.model_id,
        "state": run.state(now_us),
        "batches": len(run.trained),
        "version": run.version,
        "reward": None if last is None else last.metrics.get("reward"),
        "age_s": None if last is None else round((now_us - trained_us(last)) / 1e6, 1),
    }


def whole(run: Run, now_us: int) -> JsonDict:
    """Everything about one run but its curves point by point."""
    exported = run.exported
    return {
        **row(run, now_us),
        "reason": run.ended.reason if run.ended else None,
        "started_us": run.started_us,
        "incarnations": run.incarnations,
        "published": len(run.published),
        "newest_export": {"version": exported.version, "uri": exported.checkpoint_uri} if exported else None,
        "best": None if run.best is None else evaluation(run.best),
        "evaluations": [evaluation(run.evaluations[version]) for version in sorted(run.evaluations)],
        "skipped": dict(run.skip_reasons.most_common()),
        "given_up": sorted(run.given_up),
        "curve": curve(run),
        "episodes": episodes(run),
        "settings": flat(run.config),
    }


def evaluation(event: VersionEvaluated) -> JsonDict:
    """One version's evaluation. `pass_at`: k -> share of tasks."""
    return {
        "version": event.version,
        "greedy": event.greedy,
        "pass_at": dict(sorted(event.pass_at.items(), key=lambda item: int(item[0]))),
        "trajectories": event.trajectories,
        "best": event.best,
        "held_out": event.held_out,
        "export": event.checkpoint_uri,
    }


def episodes(run: Run) -> JsonDict:
    """Means over the last `WINDOW` batches of how episodes went. `environments`: NAME -> those of metrics `env.NAME.…`."""
    batches = run.batches[-WINDOW:]
    names = sorted({name for batch in batches for name in batch.metrics})
    means = {name: mean for name in names if (mean := _mean(batches, name)) is not None}
    own = {name: means[name] for name in EPISODES if name in means}
    return {**own, "environments": environments(means)}


def environments(means: Mapping[str, float]) -> JsonDict:
    """NAME -> metric -> mean, of metrics `env.NAME.metric`."""
    by_name: dict[str, JsonDict] = defaultdict(dict)
    for name in (name for name in means if name.startswith("env.")):
        environment, _, metric = name.removeprefix("env.").rpartition(".")
        by_name[environment][metric] = means[name]
    return dict(by_name)


def curve(run: Run) -> JsonDict:
    """Mean rewards of the first, last and best `WINDOW` batches, and of `POINTS` parts of the run."""
    series = run.series("reward")
    rewards = [value for _, value in series]
    if not rewards:
        return {"first": None, "last": None, "best": None, "parts": []}
    windows = [fmean(rewards[start : start + WINDOW]) for start in range(max(1, len(rewards) - WINDOW + 1))]
    return {
        "first": windows[0],
        "last": windows[-1],
        "best": max(windows),
        "parts": [
            {"batches": [part[0][0], part[-1][0]], "reward": fmean(value for _, value in part)}
            for part in parts(series)
        ],
    }


def parts(series: Sequence[tuple[int, float]]) -> list[Sequence[tuple[int, float]]]:
    """The series in at most `POINTS` parts whose lengths differ by one at most."""
    number = min(POINTS, len(series))
    ends = [len(series) * (n + 1) // number for n in range(number)]  # none of an empty series
    return [series[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def flat(config: JsonDict, prefix: str = "") -> JsonDict:
    """Nested settings under their dotted names, sorted."""
    names: JsonDict = {}
    for name, value in sorted(config.items()):
        names |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) and value else {f"{prefix}{name}": value}
    return names


def compared(left: Run, right: Run, now_us: int) -> JsonDict:
    """Two runs side by side, both over as many batches as the shorter one has. Each pair is (left, right)."""
    settings = flat(left.config), flat(right.config)
    names = sorted(set(settings[0]) | set(settings[1]))
    number = min(len(left.trained), len(right.trained))
    return {
        "runs": [row(left, now_us), row(right, now_us)],
        "settings": {
            name: [side.get(name) for side in settings]
            for name in names
            if name.rpartition(".")[2] not in OWN_PLACE and settings[0].get(name) != settings[1].get(name)
        },
        "batches": number,
        "metrics": {
            name: pair
            for name in _compared(left, right, number)
            if (pair := _means(left, right, name, number)) != [None, None]
        },
        "reward": [
            {"batches": [start, end], "means": _means(left, right, "reward", end + 1, start)}
            for start, end in _bounds(number)
        ],
        "best": [evaluation(run.best) if run.best else None for run in (left, right)],
    }


def _compared(left: Run, right: Run, number: int) -> list[str]:
    """The metrics of `COMPARED`, and those of environments and slots."""
    batches = [*left.batches[:number], *right.batches[:number]]
    names = {name for batch in batches for name in batch.metrics}
    return [*COMPARED, *sorted(name for name in names if name.startswith(BY_NAME))]


def _bounds(number: int) -> list[tuple[int, int]]:
    return [(part[0][0], part[-1][0]) for part in parts([(n, 0.0) for n in range(number)])]


def _means(left: Run, right: Run, metric: str, end: int, start: int = 0) -> list[float | None]:
    """Over the batches [start, end), counted in the order in which each run trained them."""
    return [_mean(run.batches[start:end], metric) for run in (left, right)]


def _mean(batches: Sequence[BatchTrained], metric: str) -> float | None:
    """Over the batches that have it. An environment's share is 0 in those that have episodes, but none of it."""
    values = [batch.metrics[metric] for batch in batches if metric in batch.metrics]
    if values and metric.startswith("env.") and metric.endswith(".share"):
        values += [0.0 for batch in batches if metric not in batch.metrics and "turns_mean" in batch.metrics]
    return fmean(values) if values else None
