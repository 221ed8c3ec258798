"""A bench is run rarely, and what it measures is renamed often."""

import importlib
from pathlib import Path

import pytest

import bench

MODULES = sorted(path.stem for path in Path(*bench.__path__).glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("name", MODULES)
def test_every_bench_is_importable(name: str) -> None:
    """`bench.deltas` imported a name that was gone, which its bench alone would have told."""
    importlib.import_module(f"bench.{name}")
