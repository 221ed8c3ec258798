"""What is generated of the schemas."""

import subprocess
import sys


def test_generated_files_are_up_to_date() -> None:
    """events.py and ids.json are what the generator makes of the schemas now."""
    check = subprocess.run(
        [sys.executable, "-m", "claw_r1.schemas.generate", "--check"], capture_output=True, text=True
    )
    assert check.returncode == 0, check.stdout + check.stderr
