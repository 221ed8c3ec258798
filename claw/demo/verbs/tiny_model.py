"""The demo's model: `claw_r1.claw.demo.models.tiny_model` warmed up on the demonstrations of verbs."""

import sys
from collections.abc import Sequence
from pathlib import Path

from claw_r1.claw.demo.models import tiny_model
from claw_r1.claw.demo.verbs import demonstrations


def ensure(cache: Path, seed: int, recipe: tiny_model.Recipe | None = None) -> Path:
    """The model's directory under `cache`, made when it is not there yet."""
    return tiny_model.ensure(cache, demonstrations, seed, recipe)


def main(argv: Sequence[str]) -> int:
    """Print the path of the model's directory."""
    return tiny_model.main([demonstrations.__name__, *argv])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
