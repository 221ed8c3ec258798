"""The folder where the local stack keeps what outlives a run. Standard library only: the setup reads it before anything
is installed."""

import os
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent


def claw_home() -> Path:
    """`$CLAW_HOME`, else `.claw` in the project (or in the working directory, when claw runs from an installed wheel)."""
    if configured := os.environ.get("CLAW_HOME"):
        return Path(configured).resolve()
    return (PROJECT if in_checkout() else Path.cwd()) / ".claw"


def in_checkout() -> bool:
    """Returns whether claw runs from a clone, not from an installed wheel."""
    return (PROJECT / "pyproject.toml").exists()


def setup_command(packages: str = "light") -> str:
    """Names the command that installs what a local Kafka needs, or all that `claw setup` calls `packages`."""
    return "python3 claw/bootstrap.py setup" if in_checkout() else f"claw setup {packages}"
