"""The first three minutes of docs/own-environment.md, typed literally: an environment and a model of the reader's own, which learns."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from claw_r1.claw.local.ports import free_ports
from tests.docs.pages import ROOT, commands, files, follow, unknown_flags
from tests.soak import only_in_soak

PAGE = "docs/own-environment.md"
TYPED = commands(PAGE, "hour")


def test_what_is_typed_can_be_typed(tmp_path: Path) -> None:
    """The commands parse, each flag of `claw` is one, and the files that one saves are an agent, demonstrations and settings."""
    saved = files(PAGE, "hour", tmp_path)
    assert saved == ["desk.py", "trainer.yaml"]
    assert subprocess.run(["bash", "-n", "-c", TYPED], check=False).returncode == 0
    assert unknown_flags(TYPED) == []
    agent = "import desk, random; assert desk.demonstration(random.Random(0)) and desk.Desk().task(7) == desk.Desk().task(7)"
    settings = "from claw_r1.trainer.settings import load; load(['--config', 'trainer.yaml'])"
    for program in (agent, settings):
        subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)


@pytest.mark.kafka
@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.timeout(900)
@only_in_soak
def test_it_learns(tmp_path: Path) -> None:
    """Followed literally (but for a port, a home and a broker of its own): the reward is 0 before and above 0.8 after."""
    files(PAGE, "hour", tmp_path)
    [gateway] = free_ports(1)
    script = TYPED.replace("8000", str(gateway)).replace("claw up ", f"claw up --port {gateway} ")
    path = f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"
    said = follow(script, tmp_path, tmp_path / "home", 800, PATH=path)
    before, after = (float(value) for value in re.findall(r'^"reward_mean":([0-9.]+)$', said, re.MULTILINE))
    assert before < 0.2
    assert after > 0.8
