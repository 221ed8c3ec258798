"""A stranger who types what README says under *Try it* sees what it says."""

import re
import subprocess
from pathlib import Path

import pytest

from claw_r1.claw.local.ports import free_ports
from tests.docs.pages import ROOT, commands, follow, unknown_flags

TRY = commands("README.md", "try")
GROUP = commands("docs/http.md", "group")


def test_what_is_typed_can_be_typed() -> None:
    """The commands parse, the script that they start exists, and each flag of `claw` is one."""
    assert subprocess.run(["bash", "-n", "-c", TRY], check=False).returncode == 0
    assert (ROOT / "examples" / "scripted_engine.py").is_file()
    assert "examples/scripted_engine.py" in TRY
    assert unknown_flags(TRY + GROUP) == []


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_call_is_captured_in_a_minute(tmp_path: Path) -> None:
    """Followed literally (but for ports, a home and a broker of its own): the reply, the step with its tokens and its reward; and on the
    same stack docs/http.md, until a group of two is ready."""
    gateway, engine = free_ports(2)
    script = TRY.replace("claw down\n", f"claw inspect my-first-episode --json\n{GROUP}claw down\n")
    ports = {"8000": str(gateway), "9000": str(engine)}
    script = re.sub("|".join(ports), lambda port: ports[port[0]], script)  # at once: a port may hold the other's digits
    script = script.replace("claw up\n", f"claw up --port {gateway}\n")
    said = follow(script, ROOT, tmp_path, 240)
    assert "Hello" in said.splitlines()
    assert "11+5 tokens" in said
    assert "return 1.000" in said
    assert "trainable" in said
    assert '"response_logprobs":[-0.5' in said.replace(" ", "")
    assert "task-7  train  2/2 ready  versions 1..1  mean 0.5  ready" in said
