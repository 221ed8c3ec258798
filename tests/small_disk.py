"""Programs on a file system that is really full: one of its own in memory, in a name space that goes with the program."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run_on_small_disk(code: str, folder: Path, size: str) -> list[str]:
    """Runs Python code whose first argument is a folder of a file system of so many bytes (`1M`); the lines that it prints. Skips where the kernel gives
    nobody a mount of their own."""
    mounted = f"mount -t tmpfs -o size={size} none {folder}"
    if subprocess.run(["unshare", "-rm", "sh", "-c", mounted], capture_output=True, check=False).returncode:
        pytest.skip("this kernel gives nobody a mount of their own")
    script = ["unshare", "-rm", "sh", "-c", f'{mounted} && exec "$0" -c "$1" {folder}', sys.executable, code]
    done = subprocess.run(script, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
