"""Request bodies of a running reader: whole, whatever it remembers, and read back no further than needed."""

import hashlib
from collections.abc import Callable, Sequence
from functools import partial

from claw_r1.datapool.view.request_bodies import BLOCK, RequestBodies, backwards
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.eventlog.records import Position, Record
from claw_r1.eventlog.settings import LogSettings
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
    bodies.add(calls[2])
    assert bodies.body(calls[2], positions[-1]) == b"abxx"
    assert starts == [positions[-1].offset - BLOCK]


def test_a_base_that_is_lost_is_searched_for_once() -> None:
    """The log is read back to its beginning for the first of such calls, and the trajectory's others know that it is gone."""
    log, (_, *positions) = published(*turns("u", 1), *(calls := turns("t", 3)[1:]))
    starts: list[int] = []
    bodies = RequestBodies(partial(backwards, noting(log, starts), 0), BYTES_MAX)
    for at, fact in zip(positions, calls, strict=True):
        bodies.add(fact)
        assert bodies.body(fact, at) is None
    assert starts == [0]


def test_what_was_crowded_out_is_read_again() -> None:
    """Without any memory every body comes from the log, and is the same."""
    log, positions = published(
        *(calls := [fact for pair in zip(turns("t", 4), turns("u", 4), strict=True) for fact in pair])
    )
    bodies = RequestBodies(partial(backwards, partial(log.read_range, CALLS), 0), 0)
    for at, fact in zip(positions, calls, strict=True):
        bodies.add(fact)
        assert bodies.body(fact, at) == b"ab" + b"x" * int(fact.call_id[1:])
