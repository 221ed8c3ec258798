"""The content of one partition of the pool, and the position that it claims.

Invariant: rows and position are cut at one vector of ends, and rows are kept as digests: the pool may be larger than
memory. Ends of several topics are not taken in one moment, so a pool that is being written may look torn; `look` tells
that from a broken one by looking again.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from claw_r1.consumers.verify.errors import OtherFolds, PoolMoves
from claw_r1.datapool import FOLD_VERSION
from claw_r1.eventlog.kafka.admin import begin_offsets, end_offsets
from claw_r1.eventlog.kafka.reader import stream_ranges
from claw_r1.eventlog.records import Place
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.codec import decode
from claw_r1.schemas.events import StreamPosition
from claw_r1.schemas.topics import GROUPS, POSITIONS, STEPS, TRAJECTORIES

TOPICS = (STEPS, TRAJECTORIES, GROUPS, POSITIONS)
ATTEMPTS = 5
TopicKey = tuple[str, bytes]
"""Topic without prefix, and key."""
RowDigests = Mapping[TopicKey, bytes]
"""Digest of the latest value."""
Wrong = dict[TopicKey, str]
"""Kind of finding for each row that is not as it must be."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The pool of one partition."""

    rows: RowDigests
    offsets: Mapping[str, int]
    """Full topic name -> the first offset that is not folded."""


def digest(value: bytes) -> bytes:
    """Returns the digest that is kept of a row."""
    return hashlib.blake2b(value, digest_size=16).digest()


def snapshot(settings: LogSettings, partition: int) -> Snapshot:
    """The latest row of each key as of now. Raises BrokerUnreachable, OtherFolds, UndecodableRecord (a position)."""
    catalogue = settings.catalogue()
    names = {catalogue.name(topic): topic.name for topic in TOPICS}
    begins = begin_offsets(settings, TOPICS)
    ends = end_offsets(settings, TOPICS)
    ranges: dict[Place, tuple[int, int]] = {at: (begins[at], ends[at]) for at in ends if at[1] == partition}
    rows: dict[TopicKey, bytes] = {}
    offsets: Mapping[str, int] = {}
    for record in stream_ranges(settings, ranges):
        key = names[record.topic], record.key or b""
        if record.value is None:
            rows.pop(key, None)
        elif key[0] == POSITIONS.name:
            offsets = position(record.value)
        else:
            rows[key] = digest(record.value)
    return Snapshot(rows, offsets)


def position(value: bytes) -> Mapping[str, int]:
    """Offsets of a position record. Raises OtherFolds."""
    event = decode(value)
    if not isinstance(event, StreamPosition):
        return {}
    if event.fold_version != FOLD_VERSION:
        raise OtherFolds(
            f"the pool of partition {event.partition} is of fold version {event.fold_version}, this is {FOLD_VERSION}: "
            "`claw rebuild` makes a generation that can be verified"
        )
    return event.offsets


def wrong_rows(expected: RowDigests, actual: RowDigests) -> Wrong:
    """Rows that are missing, changed, or that no fact explains."""
    wrong: Wrong = dict.fromkeys(expected.keys() - actual.keys(), "pool_missing")
    wrong |= dict.fromkeys(actual.keys() - expected.keys(), "pool_unexpected")
    wrong |= {key: "pool_changed" for key in expected.keys() & actual.keys() if expected[key] != actual[key]}
    return dict(sorted(wrong.items()))


def look(
    settings: LogSettings, partition: int, expected_at: Callable[[Mapping[str, int]], RowDigests]
) -> tuple[Wrong, int]:
    """Returns the wrong rows of a partition of the pool, and how many rows it has. expected_at: offsets -> rows that
    must be.

    A row counts as wrong when the pool stood still, or when it is wrong each time. Raises PoolMoves when neither can
    be said.
    """
    always: Wrong | None = None
    for _ in range(ATTEMPTS):
        seen = snapshot(settings, partition)
        wrong = wrong_rows(expected_at(seen.offsets), seen.rows)
        if not wrong or snapshot(settings, partition) == seen:
            return wrong, len(seen.rows)
        always = wrong if always is None else {key: kind for key, kind in wrong.items() if always.get(key) == kind}
    if not always:
        raise PoolMoves(
            f"the pool of partition {partition} changed at each of {ATTEMPTS} looks: stop the streams first"
        )
    return always, len(seen.rows)
