"""The progress of each order of tasks, so that a runner that starts again goes on behind what was opened.

An order is what one run makes of one set of tasks under one seed; the id of a group in it is `<order>-<ordinal>`. The next
ordinal is one more than the highest of three sources, which together hold every opening that was ever acknowledged:

1. the pool's groups, which are complete up to the offsets that the streams' consumer group has committed, because streams
   commits an offset after the rows that it led to;
2. `calls` from these offsets to its end, read for each question: what streams has not folded yet, whichever gateway wrote it;
3. what this process claimed itself, acknowledged or not.

So the answer is right when streams lags or stands still, and after a restart of this gateway. While the spool holds
anything, there is no answer: openings of a process before this one may be in it.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable

from claw_r1.eventlog.errors import LogError
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.records import Record
from claw_r1.schemas.codec import event_name
from claw_r1.schemas.errors import UndecodableRecord
from claw_r1.schemas.events import GroupOpened, GroupRecord
from claw_r1.schemas.http import order_of
from claw_r1.schemas.topics import CALLS

CLAIMS_MAX = 10_000
"""Openings whose event ids are remembered, to know a repeated request from a second runner's, also after a restart."""


class Orders:
    """The next ordinal of each order. Written by the loop, a follower's thread and that of `Unfolded`; a lock guards it."""

    def __init__(self) -> None:
        self.read_unfolded: Callable[[], None] = lambda: None
        """The reader of `Unfolded.read`."""
        self._next: dict[str, int] = {}
        self._claims: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def next_ordinal(self, order: str) -> int:
        """The first ordinal behind all that were opened."""
        return self._next.get(order, 0)

    def note(self, opening: GroupRecord | GroupOpened) -> None:
        """Take in that a group was opened, or is about to be: its ordinal is the first event's. One in no order counts nowhere."""
        order = order_of(opening.group_id, opening.ordinal)
        if order is None or opening.ordinal is None:
            return
        event_id = opening.envelope.event_id if isinstance(opening, GroupOpened) else opening.declared_event_id
        with self._lock:
            self._next[order] = max(self.next_ordinal(order), opening.ordinal + 1)
            if event_id:
                self._claims.setdefault(opening.group_id, event_id)
            if len(self._claims) > CLAIMS_MAX:
                self._claims.popitem(last=False)

    def is_taken(self, opening: GroupOpened) -> bool:
        """Returns whether the ordinal was opened, by another event than this one."""
        order = order_of(opening.group_id, opening.ordinal)
        if order is None or opening.ordinal is None or opening.ordinal >= self.next_ordinal(order):
            return False
        return self._claims.get(opening.group_id) != opening.envelope.event_id


class Unfolded:
    """Reads openings that streams has not folded yet."""

    def __init__(
        self, log: KafkaLog, orders: Orders, pool_caught_up: Callable[[], None], spool_empty: Callable[[], bool]
    ) -> None:
        """pool_caught_up: returns once every row of a group that is committed now was noted."""
        self._log, self._orders, self._spool_empty = log, orders, spool_empty
        self._pool_caught_up = pool_caught_up

    def read(self) -> None:
        """Note every opening that was acknowledged before this call. Blocks. Raises LogError."""
        if not self._spool_empty():
            raise LogError("the spool still holds events")
        settings = self._log.settings
        group = settings.catalogue().streams_group
        committed = self._log.committed_offsets(group, [CALLS], range(settings.partitions))
        self._pool_caught_up()  # after the offsets: what lies before them is in the pool by now
        reader = self._log.reader([CALLS], start={place: at for place, at in committed.items() if at is not None})
        try:
            for record in reader.read_to_end():
                self._note(record)
        finally:
            reader.close()

    def _note(self, record: Record) -> None:
        try:
            if record.value is not None and event_name(record.value) == GroupOpened.__name__:
                event = record.event()
                if isinstance(event, GroupOpened):
                    self._orders.note(event)
        except UndecodableRecord:
            pass  # a dead letter, for streams to say so
