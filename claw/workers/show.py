"""`claw workers list`: what each worker serves, how far behind it is, and why it is in the state that it is in."""

from collections.abc import Iterable, Iterator

from claw_r1.claw.answers import Answer
from claw_r1.claw.broker_log import log_for_reading
from claw_r1.claw.workers.reports import known_workers
from claw_r1.consumers.runs.workers import worker_row
from claw_r1.consumers.text_table import table
from claw_r1.schemas.json_values import JsonDict

PHASES = ("fetch", "pause", "start", "load", "finish", "resume", "probe", "paused")
"""The phases of a sync, in their order; what else is reported comes behind them."""


def run_list(*, prefix: str, everyone: bool) -> Answer:
    """Lists the workers that the log knows, those that are gone for an hour only for `everyone`."""
    with log_for_reading(prefix) as settings:
        workers = known_workers(settings)
    rows = [worker_row(worker) for worker in workers if everyone or not worker.gone]
    left_out = len(workers) - len(rows)
    hint = None
    if left_out:
        hint = f"left out: {left_out} that ended or fell silent more than an hour ago (--all)"
    elif not rows:
        hint = "no worker has reported yet; `claw up --model M` or `claw rollout --model M` starts one"
    return Answer({"workers": rows, "left_out": left_out}, as_text(rows) if rows else (), hint=hint)


def as_text(rows: Iterable[JsonDict]) -> Iterator[str]:
    """A table."""
    head = ("worker", "state", "version", "behind", "calls", "KV", "last sync, ms", "why")
    yield from table([head, *map(_cells, rows)])


def _cells(worker: JsonDict) -> tuple[str, ...]:
    state = f"{worker['state']}, silent {worker['age_s']:.0f} s" if worker["silent"] else worker["state"]
    version = "-" if worker["version"] is None else f"{worker['run']}/{worker['version']}"
    behind = "-" if worker["versions_behind"] is None else str(worker["versions_behind"])
    usage = "-" if worker["kv_usage"] is None else f"{worker['kv_usage']:.0%}"
    sync = worker["sync_ms"]
    names = [name for name in PHASES if name in sync] + sorted(sync.keys() - set(PHASES))
    phases = " ".join(f"{name} {sync[name]:.4g}" for name in names) or "-"
    if worker["weights_from"]:
        phases += f", from {worker['weights_from'].partition(';')[0]}"
    return worker["worker"], state, version, behind, str(worker["in_flight"]), usage, phases, worker["why"] or ""
