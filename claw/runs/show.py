"""Runs as text or JSON: `claw runs list|show|compare`."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import orjson

from claw_r1.claw.answers import Answer
from claw_r1.claw.broker_log import log_for_reading
from claw_r1.consumers.runs import summary
from claw_r1.consumers.runs.read import read_all, read_named
from claw_r1.consumers.text_table import table
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.json_values import JsonDict

TASKS = {True: ", held-out tasks", False: ", tasks not held out of training", None: ""}
UNITS = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


def run_list(*, prefix: str) -> Answer:
    """Lists all runs."""
    with log_for_reading(prefix) as settings:
        rows = [summary.row(run, now_us()) for run in read_all(settings)]
    hint = None if rows else "the log has no runs yet; `claw demo` or `claw train` begins one"
    return Answer({"runs": rows}, list_text(rows) if rows else (), hint=hint)


def run_show(name: str, *, prefix: str) -> Answer:
    """Shows one run. Raises NoSuchRun."""
    with log_for_reading(prefix) as settings:
        (run,) = read_named(settings, [name])
    whole = summary.whole(run, now_us())
    return Answer(whole, show_text(whole))


def run_compare(left: str, right: str, *, prefix: str) -> Answer:
    """Shows two runs side by side. Raises NoSuchRun."""
    with log_for_reading(prefix) as settings:
        runs = {run.run_id: run for run in read_named(settings, dict.fromkeys((left, right)))}
    pair = summary.compared(runs[left], runs[right], now_us())
    return Answer(pair, compare_text(pair))


def list_text(rows: Iterable[JsonDict]) -> Iterator[str]:
    """A table; the width of its first columns is that of the longest name."""
    cells = [("run", "model", "state", "batches", "version", "reward", "last batch")]
    cells += [
        (
            row["run"],
            row["model"],
            row["state"],
            str(row["batches"]),
            _number(row["version"]),
            _number(row["reward"]),
            _age(row["age_s"]),
        )
        for row in rows
    ]
    yield from table(cells)


def show_text(run: JsonDict) -> Iterator[str]:
    """The summary of a run, from what it is to how it was set."""
    reason = f" ({run['reason']})" if run["reason"] else ""
    yield f"run {run['run']} of {run['model']}: {run['state']}{reason} after {run['batches']} batches, version {_number(run['version'])}"
    began = datetime.fromtimestamp(run["started_us"] / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    resumed = f", resumed {run['incarnations'] - 1} times" if run["incarnations"] > 1 else ""
    yield f"  began {began}{resumed}; last batch {_age(run['age_s'])}"
    curve = run["curve"]
    yield f"  reward: first {summary.WINDOW} batches {_number(curve['first'])}, last {_number(curve['last'])}, best {_number(curve['best'])}"
    if curve["parts"]:
        points = (f"{part['batches'][0]}-{part['batches'][1]}: {part['reward']:.2f}" for part in curve["parts"])
        yield f"  curve by batches: {'  '.join(points)}"
    yield from _episodes(run["episodes"])
    export = run["newest_export"]
    yield f"  {run['published']} versions published; " + (
        f"newest export: version {export['version']}, {export['uri']}" if export else "none was exported"
    )
    yield from _evaluations(run)
    if run["skipped"]:
        yield "  skipped: " + ", ".join(f"{groups} groups {reason}" for reason, groups in run["skipped"].items())
    if run["given_up"]:
        yield f"  batches given up: {', '.join(map(str, run['given_up']))}"
    yield "  settings"
    yield from (f"    {name} = {_setting(value)}" for name, value in run["settings"].items())


def _episodes(means: JsonDict) -> Iterator[str]:
    if "turns_mean" not in means:  # of a trainer that did not say it
        return
    yield f"  episodes of the last {summary.WINDOW} batches: {_went(means)}"
    for name, own in means["environments"].items():
        reward, share = _number(own.get("reward")), _number(own.get("share"))
        yield f"    {name}: reward {reward}, share {share}, {_went(own)}"


def _went(means: JsonDict) -> str:
    mean, p95, cut, turns, failed = (_number(means.get(name)) for name in summary.EPISODES)
    return f"{mean} tokens per reply (p95 {p95}), {turns} turns, cut off {cut}, failed {failed}"


def _evaluations(run: JsonDict) -> Iterator[str]:
    best = run["best"]
    if best is None:
        yield "  no version was evaluated (`claw agents run --eval-every K`)"
        return
    yield f"  best evaluated version: {_evaluation(best)}; {best['export'] or 'not exported'}"
    yield from (f"    {_evaluation(one)}" for one in run["evaluations"])


def _evaluation(one: JsonDict) -> str:
    shares = "".join(f", pass@{k} {share:.3f}" for k, share in one["pass_at"].items())
    return f"version {one['version']}: greedy {_number(one['greedy'])}{shares}, {one['trajectories']} episodes{TASKS[one['held_out']]}"


def compare_text(pair: JsonDict) -> Iterator[str]:
    """Settings that differ, then means over equally many batches, then rewards part by part."""
    yield from list_text(pair["runs"])
    names = [row["run"] for row in pair["runs"]]
    yield ""
    if not pair["settings"]:
        yield "no setting differs"
    else:
        settings = [(name, *map(_setting, values)) for name, values in pair["settings"].items()]
        yield from table([("setting", *names), *settings])
    yield ""
    means = [(name, *map(_number, values)) for name, values in pair["metrics"].items()]
    yield from table([(f"mean of {pair['batches']} batches", *names), *means])
    yield ""
    rewards = [(f"{part['batches'][0]}-{part['batches'][1]}", *map(_number, part["means"])) for part in pair["reward"]]
    yield from table([("reward of batches", *names), *rewards])
    for name, best in zip(names, pair["best"], strict=True):
        if best is not None:
            yield f"best evaluated of {name}: {_evaluation(best)}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _setting(value: object) -> str:
    return orjson.dumps(value).decode() if not isinstance(value, str) else value


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "none yet"
    for unit_s, unit in UNITS:
        if seconds >= unit_s:
            return f"{seconds / unit_s:.0f} {unit} ago"
    return "now"
