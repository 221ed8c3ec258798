"""What a stack's manager writes for other processes: who it is, and the states of its components."""

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

from schemas.runtime.component import ComponentState, State
from schemas.runtime.files import write_atomically
from schemas.runtime.identity import ProcessId

STATUS_FILE = "status.json"
OVER = frozenset({State.FINISHED, State.DEAD, State.STOPPED})


def write_status(run_dir: Path, states: list[ComponentState]) -> None:
    """Writes the states of this process's components."""
    run_dir.mkdir(parents=True, exist_ok=True)
    manager = ProcessId.of(os.getpid())
    status = {"manager": asdict(manager) if manager else None, "components": [asdict(state) for state in states]}
    write_atomically(run_dir / STATUS_FILE, json.dumps(status))


def read_status(run_dir: Path) -> list[ComponentState]:
    """The states that a manager wrote; empty when no manager ever ran there.

    When the manager is gone its components are, too (`schemas/runtime/die_with_parent.py`), whatever the file says.
    """
    try:
        status = json.loads((run_dir / STATUS_FILE).read_text())
    except (OSError, ValueError):
        return []
    states = [ComponentState(**{**entry, "state": State(entry["state"])}) for entry in status["components"]]
    if status["manager"] and ProcessId(**status["manager"]).alive:
        return states
    return [state if state.state in OVER else replace(state, pid=None, state=State.DEAD) for state in states]
