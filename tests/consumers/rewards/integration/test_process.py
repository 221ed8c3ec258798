"""What a process of scorers cannot work with ends it at once, with one line and exit code 2. No broker."""

import socket
import subprocess
import sys

import pytest

REFUSED = {
    "no file": (None, "rewards.yaml"),
    "two in one slot": (
        "scorers:\n  rule/a: {use: m:f, version: 1, scope: call}\n  rule/a: {use: m:f, version: 1, scope: call}",
        "rule/a stands there twice",
    ),
    "no function": ("scorers: {rule/a: {use: 'nowhere:f', version: 1, scope: call}}", "rule/a: "),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_ends_with_one_line(tmp_path, case):
    """File and slot stand in it; a slot whose thread dies takes the process with it."""
    text, line = REFUSED[case]
    if text is not None:
        (tmp_path / "rewards.yaml").write_text(text)
    argv = [sys.executable, "-m", "claw_r1.consumers.rewards", "--config", str(tmp_path / "rewards.yaml")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    last = done.stderr.splitlines()[-1]
    assert (done.returncode, last.startswith("rewards: ")) == (2, True)
    assert line in last


def test_a_metrics_port_that_is_taken_ends_it_with_one_line(tmp_path):
    """The line names the port; nothing was asked of a broker before."""
    (tmp_path / "rewards.yaml").write_text("scorers: {rule/a: {use: 'json:dumps', version: 1, scope: call}}")
    argv = [sys.executable, "-m", "claw_r1.consumers.rewards", "--config", str(tmp_path / "rewards.yaml")]
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        argv += ["--metrics-port", str(port)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2,
        f"rewards: cannot serve metrics on 127.0.0.1:{port}: Address already in use; choose another --metrics-port",
    )
