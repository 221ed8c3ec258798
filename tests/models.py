"""The demo's model, made once for all tests that play with it: its directory is named after everything that decides it."""

from pathlib import Path

from claw_r1.claw.home import PROJECT

MODELS = PROJECT / ".claw" / "cache" / "models"
"""Where `make demo` of this checkout keeps its models, too."""


def share_models(home: Path) -> None:
    """A claw home below `home` whose models are those of this checkout."""
    MODELS.mkdir(parents=True, exist_ok=True)
    (home / "cache").mkdir(parents=True)
    (home / "cache" / "models").symlink_to(MODELS)
