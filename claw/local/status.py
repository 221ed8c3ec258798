"""`claw status`: the components of the stack that was started last, read from the file that its manager keeps, and what
its trainer warns of."""

import json
from dataclasses import asdict
from pathlib import Path

import orjson
import psutil

from claw.local.stack import TRAINER_WARNINGS, remembered
from claw.local.status_file import read_status
from schemas.runtime.component import ComponentState, State
from schemas.runtime.identity import ProcessId

ALIVE = {State.STARTING, State.RUNNING, State.RESTARTING}


def show_status(*, as_json: bool) -> int:
    """Prints the states; exit code 1 when nothing runs."""
    run_dir = remembered()
    states = with_engine(read_status(run_dir)) if run_dir else []
    warnings = trainer_warnings(run_dir, states) if run_dir else []
    if as_json:
        answer = {
            "run_dir": str(run_dir) if run_dir else None,
            "components": [asdict(s) for s in states],
            "warnings": warnings,
        }
        print(orjson.dumps(answer).decode())
    else:
        print("\n".join([as_text(states), *(f"warning: trainer: {line}" for line in warnings)]))
    return 0 if any(state.state in ALIVE for state in states) else 1


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
    lines = [f"{s.component:<12} {s.pid or '-':>8}  {s.state:<11} restarts {s.restarts}" for s in states]
    return "\n".join(lines)


def with_engine(states: list[ComponentState]) -> list[ComponentState]:
    """Adds the vLLM server below its supervisor: it is a grandchild of ours, by way of its reaper."""
    listed: list[ComponentState] = []
    for state in states:
        listed.append(state)
        if state.component.startswith("rollout") and state.pid:
            reapers = living_children(state.pid)[:1]  # the reaper ends vLLM's whole process group, whoever dies first
            servers = [pid for reaper in reapers for pid in living_children(reaper)[:1]]
            listed += [ComponentState("vllm", pid, State.RUNNING, 0, None) for pid in servers]
    return listed


def living_children(pid: int) -> list[int]:
    """Children of a process that are no zombies, oldest first; none when the process is gone."""
    try:
        children = psutil.Process(pid).children()
    except psutil.NoSuchProcess:
        return []
    return sorted(child.pid for child in children if ProcessId.of(child.pid))
