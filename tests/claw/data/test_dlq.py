"""`claw dlq` on a real log: what it prints, and what it did."""

import json
from typing import Any

import pytest

from claw_r1.claw.answers import emit
from claw_r1.claw.data.dlq import run_dlq
from claw_r1.claw.data.settings import LetterQuery
from claw_r1.claw.errors import CannotRun
from claw_r1.consumers.pool.dead_letters import Letter
from claw_r1.consumers.pool.errors import PoolRefusal
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import CALLS
from tests.consumers.pool.letters import read

pytestmark = pytest.mark.kafka


def test_the_command_says_what_it_did(
    log_settings: LogSettings, dead: list[Letter], capsys: pytest.CaptureFixture[str], broker_in_environment: None
) -> None:
    """--dry-run appends nothing; then once; then never again; an unknown id is refused."""

    def answer(asked: LetterQuery) -> dict[str, list[str]]:
        assert emit(run_dlq("redrive", asked, prefix=log_settings.prefix), as_json=True) == 0
        told: dict[str, list[str]] = json.loads(capsys.readouterr().out)
        return told

    ids = sorted(letter.id for letter in dead)
    assert sorted(answer(LetterQuery(every=True, dry_run=True))["would_redrive"]) == ids
    assert len(read(log_settings, CALLS)) == 1
    assert answer(LetterQuery(ids=ids[:1]))["redriven"] == ids[:1]
    assert answer(LetterQuery(every=True))["already"] == ids[:1]
    assert answer(LetterQuery(every=True))["redriven"] == []
    with pytest.raises(PoolRefusal, match="no dead letter 9@9"):
        emit(run_dlq("show", LetterQuery(ids=["9@9"]), prefix=log_settings.prefix), as_json=True)
    assert emit(run_dlq("list", LetterQuery(pending=True), prefix=log_settings.prefix), as_json=True) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n"), "no dead letter meets the options" in shown.err) == ("", 1, True)
    assert emit(run_dlq("show", LetterQuery(ids=ids), prefix=log_settings.prefix), as_json=False) == 0
    assert "header claw_reason: fold_bug" in capsys.readouterr().out


def test_a_dismissed_letter_waits_no_more_and_may_still_go_back(
    log_settings: LogSettings, dead: list[Letter], capsys: pytest.CaptureFixture[str], broker_in_environment: None
) -> None:
    """The word stands beside it and is no letter; said again it is nothing new; `--all` passes it over, its name does not."""

    def answers(action: str, **asked: Any) -> list[Any]:
        query = LetterQuery(why="a test's own", who="ann", **asked)
        assert emit(run_dlq(action, query, prefix=log_settings.prefix), as_json=True) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    first, second = sorted(letter.id for letter in dead)
    with pytest.raises(CannotRun, match="--why"):
        emit(run_dlq("dismiss", LetterQuery(every=True), prefix=log_settings.prefix), as_json=True)
    assert answers("dismiss", ids=[first], dry_run=True) == [{"dismissed": [], "would_dismiss": [first]}]
    for dismissed in ([first], []):
        assert answers("dismiss", ids=[first]) == [{"dismissed": dismissed, "would_dismiss": []}]
    assert {row["id"]: row["dismissed"] for row in answers("list")} == {first: "ann: a test's own", second: ""}
    assert [row["id"] for row in answers("list", pending=True)] == [second]
    assert answers("redrive", every=True)[0]["redriven"] == [second]
    assert answers("redrive", ids=[first])[0]["redriven"] == [first]


@pytest.fixture
def broker_in_environment(log_settings: LogSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands find the broker as a person's would."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", log_settings.bootstrap_servers)
