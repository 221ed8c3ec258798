"""The demo's model: `examples.tiny_model` warmed up on the demonstrations of verbs."""

import sys
from collections.abc import Sequence
from pathlib import Path

from examples import tiny_model


def ensure(cache: Path, seed: int, recipe: tiny_model.Recipe | None = None) -> Path:
    """The model's directory under `cache`, made when it is not there yet."""
    return tiny_model.ensure(cache, "verbs", seed, recipe)


def main(argv: Sequence[str]) -> int:
    """Print the path of the model's directory."""
    return tiny_model.main(["verbs", *argv])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
