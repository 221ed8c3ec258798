"""`claw inspect` on a real log: one trajectory, its steps and its conversation."""

import json

import pytest

from claw_r1.claw.answers import emit
from claw_r1.claw.show.inspect import inspect
from claw_r1.consumers.pool.errors import PoolRefusal
from claw_r1.eventlog.settings import LogSettings
from tests import facts
from tests.claw import pooled
from tests.consumers import published

pytestmark = pytest.mark.kafka


@pytest.fixture
def settings(log_settings: LogSettings, monkeypatch: pytest.MonkeyPatch) -> LogSettings:
    """A pool of two groups, each with a trajectory `same` of two calls and one of its own name."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", log_settings.bootstrap_servers)
    for group in ("a", "b"):
        pooled.write(log_settings, [*published.episode(group, "same"), *published.episode(group, f"{group}-only", 0.5)])
    return log_settings


def test_a_trajectory_is_shown_with_its_calls_in_order(
    settings: LogSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its record, its steps in the order of its calls, the facts behind them, and each message once."""
    assert emit(inspect("a-only", None, prefix=settings.prefix), as_json=True) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["trajectory"]["group_id"], shown["trajectory"]["return_total"]) == ("a", 0.5)
    calls = ["a-only-0", "a-only-1"]
    assert [step["call_id"] for step in shown["steps"]] == [call["call_id"] for call in shown["calls"]] == calls
    assert [message["content"] for message in shown["conversation"] if message["role"] == "assistant"] == [
        "10 20",
        "11 21",
    ]


def test_a_pool_that_is_behind_says_so(settings: LogSettings, capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr, so that nobody takes an earlier moment for now; of a pool that holds all facts there is no word."""
    assert emit(inspect("a-only", None, prefix=settings.prefix), as_json=True) == 0
    assert "behind" not in capsys.readouterr().err
    published.publish(
        settings, [published.outgoing(facts.call("later", "t")), published.outgoing(facts.call("z", "t"))]
    )
    assert emit(inspect("a-only", None, prefix=settings.prefix), as_json=True) == 0
    shown = capsys.readouterr()
    assert "the pool is 2 facts behind" in shown.err
    assert json.loads(shown.out)["trajectory"]["trajectory_id"] == "a-only"


def test_a_person_reads_state_steps_and_conversation(settings: LogSettings, capsys: pytest.CaptureFixture[str]) -> None:
    """The text names the group, the return, where each call stands in the log, and what was said."""
    assert emit(inspect("b-only", "b", prefix=settings.prefix), as_json=False) == 0
    text = capsys.readouterr().out
    for part in (
        "trajectory b-only of group b",
        "return 0.500",
        "2 calls",
        f"{settings.prefix}.calls[",
        "assistant  10 20",
    ):
        assert part in text


def test_a_group_and_its_trajectory_are_named_as_elsewhere(
    settings: LogSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    """GROUP/TRAJECTORY, as `claw label` and `claw rewards test --on` take it; ids may hold slashes, and the group may be said twice."""
    pooled.write(settings, [*published.episode("a/b", "c/d"), *published.episode("b", "a/same")])
    for name, group, place in (
        ("a/same", "a", ("a", "same")),
        ("b/same", None, ("b", "same")),
        ("a/b/c/d", None, ("a/b", "c/d")),
        ("c/d", None, ("a/b", "c/d")),
        ("b/a/same", None, ("b", "a/same")),
    ):
        assert emit(inspect(name, group, prefix=settings.prefix), as_json=True) == 0
        shown = json.loads(capsys.readouterr().out)["trajectory"]
        assert (shown["group_id"], shown["trajectory_id"]) == place
    with pytest.raises(PoolRefusal, match="several groups have a trajectory a/same"):
        emit(inspect("a/same", None, prefix=settings.prefix), as_json=True)
    assert emit(inspect("b/b/same", None, prefix=settings.prefix), as_json=True) == 1


def test_a_reward_without_a_value_says_why(settings: LogSettings, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the trajectory and of its calls: taken back, or the word of the scorer that gave up."""
    judged = [
        facts.reward("c", "t", None, source="human:ann", name="thumb"),
        facts.reward("c", "t", 0.5, source="judge"),
        facts.gave_up("c", "t", call_id="t-0"),
    ]
    pooled.write(settings, [*published.episode("c", "t"), *judged])
    assert emit(inspect("t", "c", prefix=settings.prefix), as_json=False) == 0
    text = capsys.readouterr().out
    assert "  rewards agent/completion 1, human:ann/thumb taken back, judge/outcome 0.5" in text
    assert "rewards judge/style failed (deadline)" in text


def test_an_unknown_or_ambiguous_name_is_told_apart(settings: LogSettings, capsys: pytest.CaptureFixture[str]) -> None:
    """No such trajectory is exit code 1; one of several groups is a refusal that names them; --group decides."""
    assert emit(inspect("nobody", None, prefix=settings.prefix), as_json=True) == 1
    assert json.loads(capsys.readouterr().out) == {"found": False}
    with pytest.raises(PoolRefusal, match=r"--group \((a, b|b, a)\)"):
        emit(inspect("same", None, prefix=settings.prefix), as_json=True)
    assert emit(inspect("same", "b", prefix=settings.prefix), as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["trajectory"]["group_id"] == "b"
