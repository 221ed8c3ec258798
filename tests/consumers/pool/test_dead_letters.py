"""Dead letters on a real log: listed, shown, and redriven exactly once."""

from collections.abc import Sequence
from contextlib import closing

import pytest

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
from claw_r1.eventlog.dead_letters import dead_letter
from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.records import Outgoing, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import CALLS, DEAD_LETTERS, POSITIONS, REWARDS, STEPS, WORKERS
from claw_r1.streams.partition.state import PartitionState
from tests.consumers import published
from tests.consumers.pool.letters import read

pytestmark = pytest.mark.kafka


def redrive(settings: LogSettings, routes: Sequence[RedriveRoute]) -> None:
    with closing(EventProducer(settings)) as producer:
        dead_letters.redrive(producer, routes)


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
        item for state in states.values() for item in state.take_batch(0) if item.topic not in (POSITIONS, DEAD_LETTERS)
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
