"""The log of a reading command: whoever waits for a broker of the command's own is told."""

from pathlib import Path

import pytest

from claw_r1.claw.broker_log import log_for_reading
from claw_r1.claw.local.broker import broker_dir
from claw_r1.claw.local.kafka.node import LocalBroker
from claw_r1.eventlog.kafka.admin import check_broker
from tests.caches import share_caches

pytestmark = pytest.mark.kafka


def test_a_broker_of_the_commands_own_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line when the command starts and stops a broker; none when one runs, which is left running."""
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.setenv("CLAW_HOME", str(tmp_path))
    share_caches(tmp_path)
    with log_for_reading("claw") as settings:
        assert check_broker(settings).brokers
    said = capsys.readouterr().err
    assert (said.count("no broker was running"), "`claw broker`" in said) == (1, True)
    with LocalBroker(broker_dir()) as running:
        with log_for_reading("claw") as settings:
            assert settings.bootstrap_servers == running.bootstrap
        assert "no broker was running" not in capsys.readouterr().err
        assert check_broker(settings).brokers, "it was not ours to stop"
