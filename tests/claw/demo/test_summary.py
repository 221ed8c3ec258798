"""The last lines of a demo."""

import shlex
import shutil

from claw.demo.summary import further


def test_the_three_commands_can_be_typed_as_they_stand() -> None:
    """Each begins with a program that is there, and names the prefix where it is not the usual one."""
    for line in further("t1", "claw"):
        assert shutil.which(shlex.split(line)[0])
    assert all(line.endswith("--prefix other") for line in further("t1", "other"))
    assert "inspect t1" in further("t1", "claw")[2]
