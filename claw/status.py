"""`claw status`: the components of the stack that was started last, read from the file that its manager keeps."""

from dataclasses import asdict
from pathlib import Path

import orjson

from claw.processes import ComponentState, State, read_status
from claw.procfs import ProcessId
from claw.stack import remembered

ALIVE = {State.STARTING, State.RUNNING, State.RESTARTING}


def show_status(*, as_json: bool) -> int:
    """Prints the states; exit code 1 when nothing runs."""
    run_dir = remembered()
    states = with_engine(read_status(run_dir)) if run_dir else []
    if as_json:
        print(
            orjson.dumps(
                {"run_dir": str(run_dir) if run_dir else None, "components": [asdict(s) for s in states]}
            ).decode()
        )
    else:
        print(as_text(states))
    return 0 if any(state.state in ALIVE for state in states) else 1


def as_text(states: list[ComponentState]) -> str:
    if not states:
        return "nothing was started yet: `claw demo`, or `claw up`"
    lines = [f"{s.component:<12} {s.pid or '-':>8}  {s.state:<11} restarts {s.restarts}" for s in states]
    return "\n".join(lines)


def with_engine(states: list[ComponentState]) -> list[ComponentState]:
    """Adds the vLLM server below its supervisor: it is a grandchild of ours, by way of its keeper."""
    listed: list[ComponentState] = []
    for state in states:
        listed.append(state)
        if state.component.startswith("rollout") and state.pid:
            keepers = children(state.pid)[:1]  # the keeper ends vLLM's whole process group, whoever dies first
            servers = [pid for keeper in keepers for pid in children(keeper)[:1]]
            listed += [ComponentState("vllm", pid, State.RUNNING, 0, None) for pid in servers]
    return listed


def children(pid: int) -> list[int]:
    """Living children of a process, oldest first."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(child) for child in task.read_text().split()]
        except OSError:
            continue  # the thread ended between the look and the read
    return sorted(child for child in found if ProcessId.of(child))
