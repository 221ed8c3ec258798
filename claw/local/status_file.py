"""The files that a stack's manager writes for others: who it is, the states of its components, and the
addresses of their metrics."""

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from claw_r1.runtime.files import write_atomically
from claw_r1.runtime.processes.component import ComponentState, State
from claw_r1.runtime.processes.process_identity import ProcessId

STATUS_FILE = "status.json"
TARGETS_FILE = "targets.json"
OVER = frozenset({State.FINISHED, State.DEAD, State.STOPPED})


def write_status(run_dir: Path, states: list[ComponentState]) -> None:
    """Writes the states of this process's components."""
    run_dir.mkdir(parents=True, exist_ok=True)
    manager = ProcessId.of(os.getpid())
    status = {"manager": asdict(manager) if manager else None, "components": [asdict(state) for state in states]}
    write_atomically(run_dir / STATUS_FILE, json.dumps(status))
    write_atomically(run_dir / TARGETS_FILE, json.dumps([_target(state) for state in states if _is_watched(state)]))


def _is_watched(state: ComponentState) -> bool:
    """Returns whether somebody should miss it: not where it has finished, or was stopped."""
    return state.metrics_port is not None and state.state not in (State.FINISHED, State.STOPPED)


def _target(state: ComponentState) -> dict[str, Any]:  # JSON, for Prometheus's file_sd_configs
    labels = {"job": f"claw-{state.component.partition('-')[0]}", "component": state.component}
    return {"targets": [f"127.0.0.1:{state.metrics_port}"], "labels": labels}


def read_status(run_dir: Path) -> list[ComponentState]:
    """The states that a manager wrote; empty when no manager ever ran there.

    When the manager is gone its components are, too (`runtime/processes/die_with_parent.py`), whatever the file says.
    """
    status = _status(run_dir)
    states = [ComponentState(**{**entry, "state": State(entry["state"])}) for entry in status["components"]]
    if _living_manager(status):
        return states
    return [state if state.state in OVER else replace(state, pid=None, state=State.DEAD) for state in states]


def read_manager(run_dir: Path) -> ProcessId | None:
    """The manager that writes there, while it lives."""
    return _living_manager(_status(run_dir))


def _status(run_dir: Path) -> dict[str, Any]:  # Any: as `write_status` wrote it
    try:
        status: dict[str, Any] = json.loads((run_dir / STATUS_FILE).read_text())
    except (OSError, ValueError):
        return {"manager": None, "components": []}
    return status


def _living_manager(status: dict[str, Any]) -> ProcessId | None:
    manager = ProcessId(**status["manager"]) if status["manager"] else None
    return manager if manager and manager.alive else None
