"""`claw broker`: what it takes, and what it refuses."""

import pytest

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.local.broker_command import run_broker
from claw_r1.claw.local.kafka_tools import TOOLS


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
