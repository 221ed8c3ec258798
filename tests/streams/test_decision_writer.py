"""The skin of the reactors, without a log."""

from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import GroupClosed
from claw_r1.streams.decision_writer import DecisionWriter
from claw_r1.streams.metrics import StreamsMetrics
from claw_r1.streams.partition.state import PartitionState


class Written:
    """A producer that remembers."""

    def __init__(self) -> None:
        self.keys: list[bytes | None] = []

    async def publish_all(self, items):
        self.keys += [item.key for item in items]


def closing(group_id: str) -> GroupClosed:
    made = envelope("test", event_id=f"close-{group_id}")
    return GroupClosed(envelope=made, group_id=group_id, members=(), reason="deadline", last_progress_event_id="e")


async def test_what_is_ripe_is_written_although_something_new_falls_due_in_every_round():
    """Under steady traffic each round has a new decision; the old ones are not put off for it."""

    async def no_ends():
        return {}

    written, states = Written(), {0: PartitionState(0, 1)}
    writer = DecisionWriter(written, lambda state, now_us: [], StreamsMetrics(), no_ends)
    for new in ("a", "b", "c"):
        known = [name for name in ("a", "b", "c") if name <= new and name.encode() not in written.keys]
        await writer.act({0: [closing(name) for name in known]}, states)
    assert written.keys == [b"a", b"b"]


async def test_what_falls_due_again_waits_for_what_the_log_holds_by_then():
    """Its partition was somebody else's meanwhile: what was asked for then says nothing of the facts since."""
    ends = iter([0, 5])

    async def ask_ends():
        return {("claw.calls", 0): next(ends)}

    written, states = Written(), {0: PartitionState(0, 1)}
    writer = DecisionWriter(written, lambda state, now_us: [], StreamsMetrics(), ask_ends)
    for due in ([closing("a")], [], [closing("a")], [closing("a")]):
        await writer.act({0: due}, states)
    assert written.keys == []
    states[0].advance("claw.calls", 5)
    await writer.act({0: [closing("a")]}, states)
    assert written.keys == [b"a"]
