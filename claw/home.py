"""The folder where the local stack keeps what outlives a run. Standard library only: the setup reads it before anything
is installed."""

import os
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent


def claw_home() -> Path:
    """`$CLAW_HOME`, else `.claw` in the project (or in the working directory, when claw runs from an installed wheel)."""
    if configured := os.environ.get("CLAW_HOME"):
        return Path(configured).resolve()
    root = PROJECT if (PROJECT / "pyproject.toml").exists() else Path.cwd()
    return root / ".claw"
