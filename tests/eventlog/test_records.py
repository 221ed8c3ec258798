"""Records without a broker."""

from claw_r1.eventlog.records import Outgoing, Record, readable
from claw_r1.schemas.codec import encode
from claw_r1.schemas.topics import CALLS
from tests.claw.events import trained


def record(value: bytes | None) -> Record:
    return Record(topic="t", partition=0, offset=0, timestamp_ms=0, key=b"k", value=value, headers=())


def test_poison_and_tombstones_do_not_stop_a_reader() -> None:
    """What holds an event comes through, in order; null, empty and foreign bytes are passed over."""
    first, second = trained(0, 0.1), trained(1, 0.2)
    values = [encode(first), None, b"", b"garbage", encode(second)[:-1], encode(second)]
    assert list(readable(map(record, values))) == [first, second]


def test_a_tombstone_needs_no_event() -> None:
    """Outgoing.tombstone removes a key of a compacted topic."""
    assert Outgoing.tombstone(CALLS, b"k").value is None
