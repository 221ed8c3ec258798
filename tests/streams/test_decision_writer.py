"""The skin of the reactors, without a log."""

import asyncio

from claw_r1.eventlog.records import Record
from claw_r1.schemas.codec import decode, encode
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import GroupClosed
from claw_r1.schemas.keys import group_key
from claw_r1.streams.cold_store import SqliteColdStore
from claw_r1.streams.decision_writer import DecisionWriter, by_age, by_idleness
from claw_r1.streams.metrics import StreamsMetrics
from claw_r1.streams.partition.state import PartitionState
from tests import facts


class Written:
    """A producer that remembers."""

    def __init__(self) -> None:
        self.keys: list[bytes | None] = []
        self.events = []

    async def publish_all(self, items):
        self.keys += [item.key for item in items]
        self.events += [decode(item.value) for item in items]


def closing(group_id: str) -> GroupClosed:
    made = envelope("test", event_id=f"close-{group_id}")
    return GroupClosed(envelope=made, group_id=group_id, members=(), reason="deadline", last_progress_event_id="e")


def writer_of(written, decide, ends):
    """A writer whose log ends where `ends` says next."""

    async def ask_ends():
        return next(ends)

    return DecisionWriter(written, decide, StreamsMetrics(), ask_ends)


async def look(writer, state):
    await writer.act(await writer.due({0: state}, 0))


async def test_what_is_ripe_is_written_although_something_new_falls_due_in_every_round():
    """Under steady traffic each round has a new decision; the old ones are not put off for it."""
    written, state = Written(), PartitionState(0, 1)
    known = []
    writer = writer_of(written, lambda state, now_us: [closing(name) for name in known], iter([{}] * 3))
    for name in ("a", "b", "c"):
        known.append(name)
        await look(writer, state)
    assert written.keys == [b"a", b"b"]


async def test_what_falls_due_again_waits_for_what_the_log_holds_by_then():
    """Its partition was somebody else's meanwhile: what was asked for then says nothing of the facts since."""
    written, state = Written(), PartitionState(0, 1)
    rounds = iter([[closing("a")], [], [closing("a")], [closing("a")], [closing("a")]])
    ends = iter([{("claw.calls", 0): 0}, {("claw.calls", 0): 5}])
    writer = writer_of(written, lambda state, now_us: next(rounds), ends)
    for _ in range(4):
        await look(writer, state)
    assert written.keys == []
    state.advance("claw.calls", 5)
    await look(writer, state)
    assert written.keys == [b"a"]


async def look_while_the_rest_is_folded(writer, state, rest, now_us):
    """A round beside a stream that folds whatever it has as soon as it has a turn, as Faust's does."""

    async def fold():
        for each in rest:
            state.apply(each)

    folding = asyncio.create_task(fold())
    await writer.act(await writer.due({0: state}, now_us))
    await folding


def records_of(events):
    return [
        Record(
            topic=facts.topic_of(event),
            partition=0,
            offset=offset,
            timestamp_ms=0,
            key=group_key(event.group_id),
            value=encode(event),
        )
        for offset, event in enumerate(events)
    ]


def folded(log):
    """The state after these records, as its last snapshot has it."""
    state = PartitionState(0, 1, cold=SqliteColdStore())
    for each in log:
        state.apply(each)
    state.take_batch(0)
    return state


async def test_a_decision_is_of_a_state_that_has_the_facts_it_waited_for():
    """A worker returns after a deadline, and folds the last facts from before it while a round is under way: what that round
    took from the state without them is written by none."""
    log = records_of(
        [
            facts.opened(expected_size=2, deadline_us=50, envelope=facts.envelope("o", at_us=0)),
            facts.call(trajectory="t", call_id="1", envelope=facts.envelope("1", at_us=10)),
            facts.completed(trajectory="t", reward=1.0, envelope=facts.envelope("2", at_us=20)),
            facts.call(trajectory="u", call_id="3", envelope=facts.envelope("3", at_us=30)),
            facts.completed(trajectory="u", reward=0.0, envelope=facts.envelope("4", at_us=40)),
        ]
    )
    written, state = Written(), folded(log[:3])
    ends = iter([{("claw.calls", 0): len(log)}] * 9)
    writer = writer_of(written, by_idleness(1800), ends)
    await writer.act(await writer.due({0: state}, 60))
    await look_while_the_rest_is_folded(writer, state, log[3:], 61)
    assert written.events == []
    for now_us in (62, 63):
        await writer.act(await writer.due({0: state}, now_us))
    assert [event.members for event in written.events] == []


async def test_a_group_that_grew_meanwhile_is_not_evicted():
    """The same with the retention: an eviction is for ever."""
    log = records_of(
        [
            facts.call(trajectory="t", call_id="1", envelope=facts.envelope("1", at_us=10)),
            facts.call(trajectory="t", call_id="2", envelope=facts.envelope("2", at_us=100_000_000)),
        ]
    )
    written, state = Written(), folded(log[:1])
    ends = iter([{("claw.calls", 0): len(log)}] * 9)
    writer = writer_of(written, by_age(50), ends)
    await writer.act(await writer.due({0: state}, 110_000_000))
    await look_while_the_rest_is_folded(writer, state, log[1:], 110_000_001)
    await writer.act(await writer.due({0: state}, 110_000_002))
    assert written.events == []
