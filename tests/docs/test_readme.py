"""A stranger who types what README says under *Try it* sees what it says."""

import subprocess
from pathlib import Path

import pytest

from claw_r1.claw.local.ports import free_ports
from tests.docs.pages import ROOT, commands, follow, unknown_flags

TRY = commands("README.md", "try")


def test_what_is_typed_can_be_typed() -> None:
    """The commands parse, the script that they start exists, and each flag of `claw` is one."""
    assert subprocess.run(["bash", "-n", "-c", TRY], check=False).returncode == 0
    assert (ROOT / "examples" / "scripted_engine.py").is_file()
    assert "examples/scripted_engine.py" in TRY
    assert unknown_flags(TRY) == []


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_call_is_captured_in_a_minute(tmp_path: Path) -> None:
    """Followed literally (but for ports, a home and a broker of its own): the reply, the step with its tokens and its reward."""
    gateway, engine = free_ports(2)
    script = TRY.replace("8000", str(gateway)).replace("9000", str(engine))
    script = script.replace("claw up\n", f"claw up --port {gateway}\n")
    said = follow(script, ROOT, tmp_path, 240)
    assert "Hello" in said.splitlines()
    assert "11+5 tokens" in said
    assert "return 1.000" in said
    assert "trainable" in said
