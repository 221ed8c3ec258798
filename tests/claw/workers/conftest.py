"""The command on a test's log."""

from collections.abc import Callable

import pytest

from claw_r1.claw.cli import REFUSALS, app
from claw_r1.eventlog.settings import LogSettings


@pytest.fixture
def claw(log_settings: LogSettings, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """`claw workers …` on this log; its exit code."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", log_settings.bootstrap_servers)

    def run(*words: str) -> int:
        try:
            app(["workers", *words, "--prefix", log_settings.prefix, "--json"])
        except SystemExit as ended:
            return int(ended.code or 0)
        except REFUSALS:
            return 2
        raise AssertionError("typer always exits")

    return run
