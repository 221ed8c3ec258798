"""`claw status`: the components of the stack that was started last, read from the file that its manager keeps, what its
trainer warns of, and which share of the time its engines and its trainer were idle."""

import json
import time
from dataclasses import asdict
from pathlib import Path

import psutil

from claw_r1.claw.answers import Answer
from claw_r1.claw.local.ports import accepts, any_answers, split_servers
from claw_r1.claw.local.stack import TRAINER_WARNINGS, remembered, remembered_log
from claw_r1.claw.local.status_file import read_status
from claw_r1.claw.workers.idle import IdleShares, idle_shares, of_last_run
from claw_r1.claw.workers.places import engine_name
from claw_r1.datapool.runs import is_plan
from claw_r1.eventlog.errors import LogError
from claw_r1.eventlog.kafka.admin import offsets_at
from claw_r1.eventlog.kafka.reader import read_topics
from claw_r1.eventlog.records import readable
from claw_r1.runtime.processes.component import ComponentState, State
from claw_r1.runtime.processes.process_identity import ProcessId
from claw_r1.schemas.events import BatchTrained, WorkerReported
from claw_r1.schemas.topics import BATCHES, WORKERS

WINDOW_S = 600.0
ANSWER_TIMEOUT_S = 1.0
ALIVE = {State.STARTING, State.RUNNING, State.RESTARTING}


def show_status() -> Answer:
    """Lists the states; exit code 1 when nothing runs."""
    run_dir = remembered()
    states = with_engine(read_status(run_dir)) if run_dir else []
    warnings = trainer_warnings(run_dir, states) if run_dir else []
    alive = any(state.state in ALIVE for state in states)
    idle = recent_idle_shares(run_dir) if run_dir and alive else None
    answer = {
        "run_dir": str(run_dir) if run_dir else None,
        "components": [asdict(s) for s in states],
        "warnings": warnings,
        "idle": idle,
    }
    advice = [idle["advice"]] if idle and idle["advice"] else []
    lines = [as_text(states), *advice, *(f"warning: trainer: {line}" for line in warnings)]
    return Answer(answer, lines, 0 if alive else 1)


def recent_idle_shares(run_dir: Path) -> IdleShares | None:
    """Returns the idle shares of the last `WINDOW_S`, from the stack's log; None where it does not answer at once."""
    settings = remembered_log(run_dir)
    if settings is None or not any_answers(split_servers(settings.bootstrap_servers), ANSWER_TIMEOUT_S, accepts):
        return None
    topics = [WORKERS, BATCHES]
    try:
        since = offsets_at(settings, topics, int((time.time() - WINDOW_S) * 1000))
        events = list(readable(record for record in read_topics(settings, topics, since) if not is_plan(record)))
    except LogError:
        return None
    batches = [event for event in events if isinstance(event, BatchTrained)]
    return idle_shares([event for event in events if isinstance(event, WorkerReported)], of_last_run(batches))


def trainer_warnings(run_dir: Path, states: list[ComponentState]) -> list[str]:
    """The warnings of a trainer that is alive; those that a dead one left are out of date."""
    if not any(state.component == "trainer" and state.state in ALIVE for state in states):
        return []
    try:
        return [str(line) for line in json.loads((run_dir / TRAINER_WARNINGS).read_text())]
    except (OSError, ValueError):
        return []


def as_text(states: list[ComponentState]) -> str:
    if not states:
        return "nothing was started yet: `claw demo`, or `claw up`"
    return "\n".join(
        f"{s.component:<12} {s.pid or '-':>8}  {s.state:<11} restarts {s.restarts}{_metrics(s)}{_why(s)}"
        for s in states
    )


def _metrics(state: ComponentState) -> str:
    return f"  http://127.0.0.1:{state.metrics_port}/metrics" if state.metrics_port and state.state in ALIVE else ""


def _why(state: ComponentState) -> str:
    was_over = state.state is State.FINISHED and bool(state.exit_code)
    return ", it was over before it began: its log says what continues it" if was_over else ""


def with_engine(states: list[ComponentState]) -> list[ComponentState]:
    """Adds the vLLM server below its supervisor: it is a grandchild of ours, by way of its reaper."""
    listed: list[ComponentState] = []
    for state in states:
        listed.append(state)
        if state.component.startswith("rollout") and state.pid:
            reapers = living_children(state.pid)[:1]  # the reaper ends vLLM's whole process group, whoever dies first
            servers = [pid for reaper in reapers for pid in living_children(reaper)[:1]]
            listed += [ComponentState(engine_name(state.component), pid, State.RUNNING, 0, None) for pid in servers]
    return listed


def living_children(pid: int) -> list[int]:
    """Children of a process that are no zombies, oldest first; none when the process is gone."""
    try:
        children = psutil.Process(pid).children()
    except psutil.NoSuchProcess:
        return []
    return sorted(child.pid for child in children if ProcessId.of(child.pid))
