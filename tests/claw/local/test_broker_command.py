"""`claw broker`: what it takes, and what it refuses."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.local.broker_command import run_broker
from claw_r1.claw.local.kafka.node import LocalBroker
from claw_r1.claw.local.kafka.tools import TOOLS
from claw_r1.claw.local.ports import any_answers, split_servers
from claw_r1.runtime.processes.child import start
from tests import children
from tests.caches import share_caches
from tests.patience import until


def test_help_names_the_tools_and_anything_else_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Help is a result, on stdout; the usage after a mistake is not, and the exit code is 2."""
    assert run_broker(["--help"]) == 0
    usage = capsys.readouterr().out
    assert all(tool in usage for tool in TOOLS)
    for mistake in (["tool"], ["tools", "topics"], ["--port", "1"]):
        assert run_broker(mistake) == 2
        shown = capsys.readouterr()
        assert (shown.out, shown.err) == ("", usage)


@pytest.mark.kafka
def test_a_tool_of_kafka_talks_to_the_broker_in_use(
    broker: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The address need not be typed; an unknown tool is refused with the names of the others."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker)
    assert run_broker(["tool", "consumer-groups", "--list"]) == 0
    capfd.readouterr()
    with pytest.raises(CannotRun, match=r"there are: .*consumer-groups"):
        run_broker(["tool", "nonsense"])


@pytest.mark.kafka
@pytest.mark.slow
def test_a_kafka_that_dies_is_started_again(tmp_path: Path) -> None:
    """Whoever keeps a broker in a terminal need not notice: the same address answers, from another process, until it is stopped."""
    share_caches(tmp_path)
    environment = {name: value for name, value in os.environ.items() if name != "KAFKA_BOOTSTRAP_SERVERS"}
    command = [sys.executable, "-m", "claw_r1.claw", "broker"]
    keeper = start(command, env={**environment, "CLAW_HOME": str(tmp_path)}, stdout=subprocess.PIPE)
    node = LocalBroker(tmp_path / "broker")
    try:
        assert keeper.stdout is not None
        assert keeper.stdout.readline().decode().strip() == node.bootstrap  # it keeps what has started, not what starts
        first = until(lambda: node.process)
        first.signal(signal.SIGKILL)
        until(lambda: node.process not in (None, first))
        until(lambda: any_answers(split_servers(node.bootstrap), 1.0))
    finally:
        children.end(keeper, 20)
    until(lambda: node.process is None)
