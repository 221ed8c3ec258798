"""A child that came too late to be watched, and a program that is not there."""

import signal
import subprocess
import sys
from pathlib import Path

from claw_r1.runtime.processes import die_with_parent
from claw_r1.runtime.processes.die_with_parent import PROGRAM_NOT_FOUND, dying_with_parent

STRANGER = "999999999"
"""The number of a process that is no parent of anybody."""


def test_a_child_whose_parent_is_gone_already_is_not_started() -> None:
    """When the parent ended before the kernel could be asked to watch it, the program never runs."""
    command = [sys.executable, str(Path(die_with_parent.__file__)), STRANGER, str(int(signal.SIGKILL)), "echo", "ran"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "")


def test_a_program_that_is_not_there_is_named() -> None:
    """The exit code is the shells' own, the message one line without a traceback."""
    done = subprocess.run(dying_with_parent(["no-such-program"]), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        PROGRAM_NOT_FOUND,
        "cannot run no-such-program: No such file or directory\n",
    )
