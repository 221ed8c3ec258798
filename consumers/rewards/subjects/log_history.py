"""The log read backwards and by position, for what a slot did not see pass by: after a start,
and after a rebalance."""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest

from claw_r1.consumers.rewards.kept_verdicts import ScorerLog
from claw_r1.consumers.rewards.subjects.subject import Unjudgeable
from claw_r1.datapool.view.request_bodies import BLOCK, backwards
from claw_r1.eventlog.errors import HistoryCut
from claw_r1.eventlog.protocols import Lookup
from claw_r1.eventlog.records import Place, Position, Record
from claw_r1.schemas.errors import UndecodableRecord
from claw_r1.schemas.events import CallCaptured
from claw_r1.schemas.topics import Topic

FACT_BYTES = 1500
"""A call in memory beside its bodies."""
NEAR_MS = 2000
"""Rows of one transaction are written within this time, by one clock."""


@dataclass(frozen=True, slots=True)
class LogHistory:
    """Reads what lies before a place. Raises LogError, HistoryCut."""

    log: ScorerLog
    begins: Callable[[Topic], Mapping[Place, int]]
    """First offset that is there, by partition."""
    offsets_at: Callable[[Topic, int], Mapping[Place, int]]
    """First offset that is not older than a time in milliseconds, else the end."""

    def before(self, topic: Topic, partition: int, offset: int) -> Iterator[Record]:
        """The latest first."""
        place = (self.log.settings.catalogue().name(topic), partition)
        begin = self.begins(topic)[place]
        return backwards(partial(self.log.read_range, topic), begin, Position(*place, offset))

    def nearest(self, topic: Topic, partition: int, keys: Collection[bytes], near_ms: int) -> dict[bytes, Record]:
        """A record of each key: the latest that was written before `near_ms` or just after, or the next one where that is nearer,
        as it is once compaction left the last version alone. Keys without one are left out, after both ways to the end.
        """
        place = (self.log.settings.catalogue().name(topic), partition)
        middle = self.offsets_at(topic, near_ms + NEAR_MS)[place]
        nearest: dict[bytes, Record] = {}
        missing = set(keys)
        both_ways = zip_longest(self.before(topic, partition, middle), self._after(topic, place, middle))
        for record in (record for pair in both_ways for record in pair if record is not None):
            if record.key in missing and record.key is not None:
                nearest[record.key] = record
                missing.discard(record.key)
            if not missing:
                break
        return nearest

    def _after(self, topic: Topic, place: Place, offset: int) -> Iterator[Record]:
        end = self.log.end_offsets([topic])[place]
        for start in range(offset, end, BLOCK):
            yield from self.log.read_range(topic, place[1], start, min(end, start + BLOCK))


class FetchedCalls:
    """Captured calls by position, with one look into the log for many; those read last stay, up to `bytes_max`."""

    def __init__(self, lookup: Lookup, bytes_max: int) -> None:
        self._lookup = lookup
        self._bytes_max = bytes_max
        self._bytes = 0
        self._facts: OrderedDict[Position, CallCaptured | Unjudgeable] = OrderedDict()

    def fetch(self, positions: Collection[Position]) -> dict[Position, CallCaptured | Unjudgeable]:
        """Returns all; a lost or invalid call is the reason why none can judge it. Raises LogError."""
        known_facts = {at: self._facts[at] for at in positions if at in self._facts}
        for at in known_facts:
            self._facts.move_to_end(at)
        fresh: dict[Position, CallCaptured | Unjudgeable] = {}
        for at, record in self._records(set(positions) - known_facts.keys()).items():
            fresh[at] = _call(record) if isinstance(record, Record) else record
        for at, fact in fresh.items():
            self._facts[at] = fact
            self._bytes += _size(fact)
        while self._bytes > self._bytes_max and self._facts:
            self._bytes -= _size(self._facts.popitem(last=False)[1])
        return known_facts | fresh

    def close(self) -> None:
        """Idempotent."""
        self._lookup.close()

    def _records(self, positions: Collection[Position]) -> dict[Position, Record | Unjudgeable]:
        if not positions:
            return {}
        try:
            return dict(self._lookup.get(positions))
        except HistoryCut as cut:
            if len(positions) == 1:
                return dict.fromkeys(positions, Unjudgeable("text_lost", str(cut)))
        ordered = sorted(positions)  # halved: those that are left are judged
        middle = len(ordered) // 2
        return self._records(ordered[:middle]) | self._records(ordered[middle:])


def _call(record: Record) -> CallCaptured | Unjudgeable:
    try:
        event = record.event()
    except UndecodableRecord as error:
        return Unjudgeable("undecodable", f"{record.position}: {error}")
    return event if isinstance(event, CallCaptured) else Unjudgeable("undecodable", f"{record.position} is no call")


def _size(fact: CallCaptured | Unjudgeable) -> int:
    if isinstance(fact, Unjudgeable):
        return FACT_BYTES
    return (
        FACT_BYTES
        + len(fact.request.suffix)
        + len(fact.response_body)
        + 2 * len(fact.response_ids)
        + len(fact.prompt.suffix)
    )
