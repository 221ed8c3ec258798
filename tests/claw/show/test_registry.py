"""`claw registry` as a process."""

import json
import subprocess
import sys
import urllib.request

import pytest

pytestmark = pytest.mark.process
COMMAND = (sys.executable, "-m", "claw_r1.claw", "registry", "--prefix", "lab", "--port")


def test_it_needs_no_broker_and_ends_as_asked() -> None:
    """It prints its URL, answers, exits 0 after SIGTERM; a second one on its port is one line and exit 2."""
    with subprocess.Popen([*COMMAND, "0"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            with urllib.request.urlopen(f"{url}/subjects", timeout=30) as reply:
                assert "lab.weights-value" in json.load(reply)
            second = [*COMMAND, url.rpartition(":")[2]]
            refused = subprocess.run(second, capture_output=True, text=True, timeout=60, check=False)
            assert (refused.returncode, refused.stderr.count("\n")) == (2, 1), refused.stderr
        finally:
            process.terminate()
        assert process.wait(30) == 0
