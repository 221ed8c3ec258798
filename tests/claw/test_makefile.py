"""What people type first works on a fresh clone."""

import shutil
import subprocess

import pytest

from claw.home import PROJECT


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_benchmarks_set_up_first() -> None:
    """`make bench-x` installs what it needs before it runs, as demo and test do."""
    planned = subprocess.run(["make", "-n", "bench-gateway"], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert [line.split()[1:3] for line in planned.stdout.splitlines()] == [
        ["claw/bootstrap.py", "setup"],
        ["-m", "bench.gateway"],
    ]
