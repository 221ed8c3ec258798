"""The game days: what a person who plays one must not lose."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from claw_r1.claw.home import PROJECT
from tests.patience import PATIENCE_S

GAMEDAYS = PROJECT / "infra" / "gamedays"


@pytest.mark.process
@pytest.mark.parametrize("day", sorted(path.name for path in GAMEDAYS.glob("*.sh") if path.name != "common.sh"))
def test_the_home_of_who_plays_is_left_alone(day: str, tmp_path: Path) -> None:
    """A day empties its own folder; `CLAW_HOME` in that terminal may be a log that is kept."""
    shutil.copytree(GAMEDAYS, tmp_path / "infra" / "gamedays")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "activate").write_text("claw() { [ $1 = topics ]; }; python() { return 1; }\n")
    kept = tmp_path / "home" / "broker" / "0.log"
    kept.parent.mkdir(parents=True)
    kept.write_text("facts")
    environment = {**os.environ, "CLAW_HOME": str(tmp_path / "home")}
    subprocess.run(
        ["bash", tmp_path / "infra" / "gamedays" / day], env=environment, capture_output=True, timeout=2 * PATIENCE_S
    )
    assert kept.read_text() == "facts"
