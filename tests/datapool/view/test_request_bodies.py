"""Request bodies of a running reader: whole, whatever it remembers, and read back no further than needed."""

import hashlib
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from claw_r1.datapool.view.request_bodies import BLOCK, SILENCE_RECORDS_MAX, RequestBodies, backwards
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.eventlog.records import Position, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.codec import encode
from claw_r1.schemas.events import CallCaptured, Edge
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS
from tests import facts

BYTES_MAX = 1 << 20


def call(trajectory: str, number: int, body: bytes, keep: int = 0, base: str | None = None) -> CallCaptured:
    """A call whose request keeps the first bytes of its base's."""
    digest = hashlib.sha256(body).hexdigest()
    edge = Edge(base_call_id=base, keep=keep, suffix=body[keep:], full_length=len(body), full_digest=digest)
    return facts.call("g", trajectory, f"{trajectory}{number}", request=edge)


def turns(trajectory: str, count: int) -> list[CallCaptured]:
    """Each request is the one before it and a byte more."""
    bodies = [b"ab" + b"x" * number for number in range(count)]
    return [
        call(
            trajectory,
            number,
            body,
            max(0, len(body) - 1) if number else 0,
            f"{trajectory}{number - 1}" if number else None,
        )
        for number, body in enumerate(bodies)
    ]


def published(*calls: CallCaptured) -> tuple[MemoryLog, list[Position]]:
    log = MemoryLog(LogSettings(partitions=1))
    producer = log.producer()
    return log, [producer.publish_now(CALLS, group_key(fact.group_id), fact) for fact in calls]


def noting(log: MemoryLog, starts: list[int]) -> Callable[[int, int, int], Sequence[Record]]:
    """Reads of the log, whose first offsets are kept."""

    def read(partition: int, start: int, end: int) -> Sequence[Record]:
        starts.append(start)
        return log.read_range(CALLS, partition, start, end)

    return read


def test_the_way_back_is_as_short_as_the_chain() -> None:
    """Blocks are read from the call backwards until the chain is whole."""
    others = [facts.call("other", "o", f"o{number}") for number in range(BLOCK)]
    log, positions = published(*others, *(calls := turns("t", 3)))
    starts: list[int] = []
    bodies = RequestBodies(partial(backwards, noting(log, starts), 0), BYTES_MAX)
    bodies.add(calls[2], positions[-1])
    assert bodies.body(calls[2], positions[-1]) == b"abxx"
    assert starts == [positions[-1].offset - BLOCK]


def test_a_base_that_is_lost_is_searched_for_once() -> None:
    """The log is read back to its beginning for the first of such calls, and the trajectory's others know that it is gone."""
    log, (_, *positions) = published(*turns("u", 1), *(calls := turns("t", 3)[1:]))
    starts: list[int] = []
    bodies = RequestBodies(partial(backwards, noting(log, starts), 0), BYTES_MAX)
    for at, fact in zip(positions, calls, strict=True):
        bodies.add(fact, at)
        assert bodies.body(fact, at) is None
    assert starts == [0]


def test_what_was_crowded_out_is_read_again() -> None:
    """Without any memory every body comes from the log, and is the same."""
    log, positions = published(
        *(calls := [fact for pair in zip(turns("t", 4), turns("u", 4), strict=True) for fact in pair])
    )
    bodies = RequestBodies(partial(backwards, partial(log.read_range, CALLS), 0), 0)
    for at, fact in zip(positions, calls, strict=True):
        bodies.add(fact, at)
        assert bodies.body(fact, at) == b"ab" + b"x" * int(fact.call_id[1:])


def sparse(*calls: tuple[int, CallCaptured], starts: list[int]) -> tuple[RequestBodies, dict[str, Position]]:
    """Calls at offsets of a long log, which is of other groups between them, and a reader of it without anything in memory."""
    records = {offset: Record("c", 0, offset, 0, group_key(fact.group_id), encode(fact)) for offset, fact in calls}

    def read(_: int, start: int, end: int) -> Sequence[Record]:
        starts.append(start)
        return [records.get(offset, Record("c", 0, offset, 0, b"other", b"")) for offset in range(start, end)]

    positions = {fact.call_id: records[offset].position for offset, fact in calls}
    return RequestBodies(partial(backwards, read, 0), BYTES_MAX), positions


def test_a_lost_base_is_not_searched_for_to_the_beginning_of_a_long_log() -> None:
    """A process that takes the partition over would read all of it for each such conversation, longer than a poll may take, for ever."""
    far = 10 * SILENCE_RECORDS_MAX
    starts: list[int] = []
    orphan = turns("t", 2)[1]
    bodies, positions = sparse((far, orphan), starts=starts)
    bodies.add(orphan, positions["t1"])
    assert bodies.body(orphan, positions["t1"]) is None
    assert far - SILENCE_RECORDS_MAX - BLOCK <= min(starts) <= far - SILENCE_RECORDS_MAX


@pytest.mark.parametrize("pause", [SILENCE_RECORDS_MAX, SILENCE_RECORDS_MAX + 1])
def test_a_body_does_not_depend_on_what_is_in_memory(pause: int) -> None:
    """Calls of a long conversation are reached one from the other; before a silence that is too long nothing is, in either way, and in
    whatever order the bodies are asked for again."""
    first, second, third, fourth = calls = turns("t", 4)
    offsets = [7, 7 + SILENCE_RECORDS_MAX, 7 + SILENCE_RECORDS_MAX + pause, 8 + SILENCE_RECORDS_MAX + pause]
    placed = list(zip(offsets, calls, strict=True))
    remembering, positions = sparse(*placed, starts=[])
    whole = pause == SILENCE_RECORDS_MAX
    bodies = {"t0": b"ab", "t1": b"abx", "t2": b"abxx" if whole else None, "t3": b"abxxx" if whole else None}
    for fact in calls:
        remembering.add(fact, positions[fact.call_id])
        assert remembering.body(fact, positions[fact.call_id]) == bodies[fact.call_id]
    for fact in (fourth, second, third, first, fourth):
        forgetful, _ = sparse(*placed, starts=[])
        for reader in (forgetful, remembering):
            reader.add(fact, positions[fact.call_id])
            assert reader.body(fact, positions[fact.call_id]) == bodies[fact.call_id]
