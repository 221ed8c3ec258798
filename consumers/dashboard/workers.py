"""The workers as the overview and the operations show them. Pure."""

from claw_r1.consumers.dashboard.source import RunsState
from claw_r1.consumers.runs.workers import KnownWorker, age_s, worker_row
from claw_r1.schemas.json_values import JsonDict


def worker_rows(state: RunsState, now_us: int) -> list[JsonDict]:
    """Returns the rows of `claw workers list --json`; those at work first, in order of their ids."""
    newest = {(run.model_id, run.run_id): run.version for run in state.runs.values()}
    latest = [
        KnownWorker(report, newest.get((report.model_id, report.run_id or "")), age_s(report, now_us))
        for _, report in sorted(state.workers.items())
    ]
    rows = [worker_row(worker) for worker in latest if not worker.gone]
    return sorted(rows, key=lambda each: (each["state"] == "dead", each["silent"]))
