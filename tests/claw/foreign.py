"""A folder in which a person has names of ours, and what the commands that are rooms do there."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

COMMANDS = (
    "gateway", "streams", "agents run", "train", "rollout", "quality", "rewards run", "dashboard",
)  # fmt: skip
NAMES = ("gateway", "streams", "agentflow", "trainer", "rollout", "consumers", "eventlog", "datapool", "weights")


def folder_with_our_names(folder: Path) -> Path:
    """A `schemas.py`, and packages named like rooms that say `mine` when they are run."""
    folder.mkdir(exist_ok=True)
    (folder / "schemas.py").write_text("x = 1\n")
    for name in NAMES:
        (folder / name).mkdir()
        (folder / name / "__init__.py").touch()
        (folder / name / "__main__.py").write_text("print('mine')\n")
    return folder


def helps(claw: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Command -> what is wrong with its `--help` in that folder; empty: exit code 0 and its own usage."""
    running = {
        command: subprocess.Popen(
            [*claw, *command.split(), "--help"],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for command in COMMANDS
    }
    ends = {command: (process.communicate(), process.returncode) for command, process in running.items()}
    return {
        command: errors or f"exit code {code}" if code or f"usage: claw {command} " not in words else ""
        for command, ((words, errors), code) in ends.items()
    }
