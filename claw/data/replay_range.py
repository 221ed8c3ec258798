"""The part of some topics that is replayed, with its order and its pace.

Invariant: a range is offsets, decided once; a time is only a way to find them. Records of all topics come in order of their
times as far as the order of each partition of each allows, so the same range comes in the same order each time.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from claw_r1.claw.errors import CannotRun
from claw_r1.eventlog.kafka.admin import begin_offsets, end_offsets, offsets_at
from claw_r1.eventlog.kafka.offsets import ReadTimeout
from claw_r1.eventlog.kafka.reader import LogReader
from claw_r1.eventlog.records import Place, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import Topic

POLL_S = 0.2
RECORDS_PER_POLL = 500


def bound(settings: LogSettings, topics: Sequence[Topic], text: str) -> Mapping[Place, int]:
    """The offset of each partition of each topic that `beginning`, `end`, an offset or an ISO time (UTC unless it says) means now.

    Raises CannotRun for anything else, BrokerUnreachable, TopicMissing.
    """
    if text == "beginning":
        return begin_offsets(settings, topics)
    ends = end_offsets(settings, topics)
    if text == "end":
        return ends
    if text.isdecimal():
        return {place: min(int(text), end) for place, end in ends.items()}
    try:
        at = datetime.fromisoformat(text)
    except ValueError as no_time:
        raise CannotRun(f"--from and --to take beginning, end, an offset or an ISO time, not {text!r}") from no_time
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return offsets_at(settings, topics, int(at.timestamp() * 1000))


def merged(
    settings: LogSettings, topics: Sequence[Topic], starts: Mapping[Place, int], ends: Mapping[Place, int]
) -> Iterator[Record]:
    """The records with start <= offset < end of each partition, merged by time.

    Memory: what comes of the other partitions until each has shown its next record. Raises HistoryCut, BrokerUnreachable.
    """
    unread = {place for place, start in starts.items() if start < ends[place]}
    if not unread:
        return
    waiting: dict[Place, deque[Record]] = {place: deque() for place in unread}
    patience = ReadTimeout(settings)
    numbers = sorted({number for _, number in unread})
    with LogReader(settings, topics, partitions=numbers, start=starts) as reader:
        while unread or any(waiting.values()):
            while any(not waiting[place] for place in unread):
                before = reader.positions()
                for record in reader.poll(POLL_S, RECORDS_PER_POLL):
                    if record.offset < ends[place := (record.topic, record.partition)]:
                        waiting[place].append(record)
                after = reader.positions()
                unread = {place for place in unread if after[place] < ends[place]}
                patience.check(before != after)
            heads = [(queue[0].timestamp_ms, place) for place, queue in waiting.items() if queue]
            if heads:
                yield waiting[min(heads)[1]].popleft()


def paced(
    records: Iterable[Record],
    speed: float,
    *,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Record]:
    """The records at `speed` times the pace at which they were written; 0: as fast as they come."""
    if speed == 0:
        yield from records
        return
    began: float | None = None
    first_ms = 0
    for record in records:
        if began is None:
            began, first_ms = now(), record.timestamp_ms
        due = began + (record.timestamp_ms - first_ms) / 1000 / speed
        if (early := due - now()) > 0:
            sleep(early)
        yield record
