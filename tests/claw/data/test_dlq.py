"""Dead letters on a real log: listed, shown, and redriven exactly once."""

import json
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest

from claw_r1.claw.answers import emit
from claw_r1.claw.data.dlq import run_dlq
from claw_r1.claw.data.settings import LetterQuery
from claw_r1.claw.errors import CannotRun
from claw_r1.consumers.pool import dead_letters
from claw_r1.consumers.pool.dead_letters import (
    LETTER,
    Letter,
    RedriveRoute,
    attempt,
    letters,
    redriven,
    routes_of,
    summary,
)
from claw_r1.consumers.pool.errors import PoolRefusal
from claw_r1.eventlog.dead_letters import dead_letter
from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.kafka.reader import LogReader
from claw_r1.eventlog.records import Outgoing, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import CALLS, DEAD_LETTERS, POSITIONS, REWARDS, STEPS, WORKERS, Topic
from claw_r1.streams.partition.state import PartitionState
from tests import facts
from tests.consumers import published

pytestmark = pytest.mark.kafka


def read(settings: LogSettings, topic: Topic) -> list[Record]:
    with LogReader(settings, [topic]) as reader:
        return list(reader.read_to_end())


def redrive(settings: LogSettings, routes: Sequence[RedriveRoute]) -> None:
    with closing(EventProducer(settings)) as producer:
        dead_letters.redrive(producer, routes)


@pytest.fixture
def dead(log_settings: LogSettings) -> list[Letter]:
    """One letter of a fact that its reader refused, one of a fact that a fold raised on, each from its place."""
    published.publish(log_settings, [published.outgoing(facts.reward("g", "t", 1.0)), published.outgoing(facts.call())])
    (reward,), (call,) = read(log_settings, REWARDS), read(log_settings, CALLS)
    published.publish(
        log_settings,
        [
            dead_letter(call, "wrong_type", "a fact of another topic", reader="streams"),
            dead_letter(reward, "fold_bug", "ZeroDivisionError", reader="streams"),
        ],
    )
    return letters(log_settings)


def test_a_letter_tells_reason_source_and_content(log_settings: LogSettings, dead: list[Letter]) -> None:
    """Filters by reason and source; the value decoded where that can be done."""
    (call,) = letters(log_settings, reason="wrong_type")
    (reward,) = letters(log_settings, source="rewards")
    assert summary(call)["source"] == {
        "topic": f"{log_settings.prefix}.calls",
        "partition": call.record.partition,
        "offset": 0,
    }
    assert (summary(call)["key"], summary(call)["attempt"]) == ("g", "1")
    assert (attempt(call)["type"], attempt(reward)["type"]) == ("CallCaptured", "RewardAssigned")


def test_broken_bytes_wait_and_do_not_go_back(log_settings: LogSettings, dead: list[Letter]) -> None:
    """A copy would only be another letter; who can read them, for it knows their schema, takes them."""
    bad = [Outgoing(topic=CALLS, key=b"g", value=value) for value in (b"\x07nothing", None)]
    published.publish(log_settings, bad)
    broken = [dead_letter(record, "bad_magic", "", reader="streams") for record in read(log_settings, CALLS)[1:]]
    published.publish(log_settings, broken)
    going, refused = routes_of(log_settings, letters(log_settings))
    assert {route.letter.id for route in going} == {letter.id for letter in dead}
    assert sorted(why.partition(" ")[0] for why in refused.values()) == ["bad_magic", "empty_value"]
    waiting = dead_letters.pending(log_settings, letters(log_settings))
    assert {letter.id for letter in waiting} == {letter.id for letter in dead} | refused.keys()


def test_a_letter_is_redriven_once(log_settings: LogSettings, dead: list[Letter]) -> None:
    """The original key and bytes stand in the fact topic again; a second redrive finds them and appends nothing."""
    going, refused = routes_of(log_settings, dead)
    assert (refused, redriven(log_settings, going)) == ({}, set())
    redrive(log_settings, going[:1])  # as if killed half way
    assert redriven(log_settings, going) == {going[0].letter.id}
    for _ in range(2):
        done = redriven(log_settings, going)
        redrive(log_settings, [way for way in going if way.letter.id not in done])
    for topic in (CALLS, REWARDS):
        original, copy = read(log_settings, topic)
        assert (copy.key, copy.value, copy.partition) == (original.key, original.value, original.partition)
        assert dict(copy.headers).keys() >= dict(original.headers).keys() | {LETTER}


def test_a_letter_that_fails_again_keeps_its_first_source(log_settings: LogSettings, dead: list[Letter]) -> None:
    """The second letter counts two attempts, names the first place, and is a letter of its own."""
    going, _ = routes_of(log_settings, letters(log_settings, source="calls"))
    redrive(log_settings, going)
    copy = read(log_settings, CALLS)[-1]
    published.publish(log_settings, [dead_letter(copy, "bad_magic", "again", reader="streams")])
    first, second = letters(log_settings, source="calls")
    assert (second.header("attempt"), second.source) == ("2", first.source)
    going, _ = routes_of(log_settings, [first, second])
    assert redriven(log_settings, going) == {first.id}


def folded(records: list[Record], settings: LogSettings) -> dict[tuple[str, bytes | None], bytes | None]:
    """The rows that the streams write of these records."""
    states = {number: PartitionState(number, settings.partitions) for number in range(settings.partitions)}
    for record in records:
        states[record.partition].apply(record)
    rows = [
        item for state in states.values() for item in state.snapshot(0) if item.topic not in (POSITIONS, DEAD_LETTERS)
    ]
    return {(item.topic.name, item.key): item.value for item in rows}


def test_two_redrives_at_the_same_moment_have_the_effect_of_one(log_settings: LogSettings, dead: list[Letter]) -> None:
    """Each looks before the other appends: the pool is that of one copy, and two copies that fail again are one letter."""
    first, second = (routes_of(log_settings, letters(log_settings))[0] for _ in range(2))
    assert redriven(log_settings, first) == redriven(log_settings, second) == set()
    redrive(log_settings, first)
    once = read(log_settings, CALLS) + read(log_settings, REWARDS)
    redrive(log_settings, second)
    twice = read(log_settings, CALLS) + read(log_settings, REWARDS)
    assert len(twice) == len(once) + len(dead)
    assert folded(twice, log_settings) == folded(once, log_settings)
    again = [dead_letter(copy, "bad_magic", "again", reader="streams") for copy in read(log_settings, CALLS)[1:]]
    published.publish(log_settings, again)
    assert len(again) == 2
    old, new = letters(log_settings, source="calls")
    assert (old.header("attempt"), new.header("attempt")) == ("1", "2")
    going, _ = routes_of(log_settings, [old, new])
    assert redriven(log_settings, going) == {old.id}
    redrive(log_settings, going[1:])
    assert redriven(log_settings, routes_of(log_settings, letters(log_settings))[0]) == {one.id for one in [*dead, new]}


def test_only_facts_go_back(log_settings: LogSettings, dead: list[Letter]) -> None:
    """A letter from another topic, or of unknown source, is refused with the reason."""
    record = Record(f"{log_settings.prefix}.{STEPS.name}", 0, 0, 0, b"k", b"v")
    published.publish(
        log_settings, [dead_letter(record, "bad_magic", "", reader="x"), Outgoing(topic=WORKERS, key=b"k", value=b"v")]
    )
    _, refused = routes_of(log_settings, letters(log_settings))
    assert list(refused.values()) == [f"its source {log_settings.prefix}.datapool.steps is no fact topic"]


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
