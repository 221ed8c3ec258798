"""Settings of the log: where they come from, what is refused."""

import pytest
from pydantic import ValidationError

from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import CALLS


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """CLAW_LOG_* and KAFKA_BOOTSTRAP_SERVERS are read; our own name wins; arguments win over both."""
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    assert LogSettings().bootstrap_servers == "127.0.0.1:9092"
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "a:1")
    monkeypatch.setenv("CLAW_LOG_PREFIX", "demo")
    assert (LogSettings().bootstrap_servers, LogSettings().catalogue().name(CALLS)) == ("a:1", "demo.calls")
    monkeypatch.setenv("CLAW_LOG_BOOTSTRAP_SERVERS", "b:1")
    assert LogSettings().bootstrap_servers == "b:1"
    assert LogSettings(bootstrap_servers="c:1").bootstrap_servers == "c:1"


@pytest.mark.parametrize(
    "wrong",
    [{"partitions": 0}, {"prefix": "a b"}, {"bootstrap_servers": ""}, {"linger_ms": 500, "ack_timeout_ms": 400}],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, object]) -> None:
    """A value out of range or a contradiction is an error at load, not at the first record."""
    with pytest.raises(ValidationError):
        LogSettings.model_validate(wrong)


def test_settings_do_not_show_the_client_config() -> None:
    """client_config may hold a password, so its value is not in the settings' text."""
    assert "s3cret" not in repr(LogSettings(client_config={"sasl.password": "s3cret"}))
