"""The progress of each order of tasks, so that a runner that
starts again goes on behind what was opened, and knows how its
tasks went.

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
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import NamedTuple

import orjson

from claw_r1.eventlog.errors import LogError
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.records import Record
from claw_r1.schemas.codec import event_name
from claw_r1.schemas.errors import UndecodableRecord
from claw_r1.schemas.events import GroupOpened, GroupRecord
from claw_r1.schemas.http import TASK_GROUPS_MAX, order_of
from claw_r1.schemas.json_values import json_digest
from claw_r1.schemas.topics import CALLS

CLAIMS_MAX = 10_000
"""Openings whose event ids are remembered, to know a repeated request from a second runner's,
also after a restart."""

RETURNS_MAX = 50_000
"""Groups whose returns are remembered, over all orders: those that were told of last."""


class GroupReturns(NamedTuple):
    """The returns of the members of one group."""

    ordinal: int
    order: str
    task: str
    """The digest of its content."""
    lowest: float
    highest: float


class Orders:
    """The next ordinal of each order. Written by the loop, a follower's thread and that of
    `Unfolded`; a lock guards it."""

    def __init__(self, returns_max: int = RETURNS_MAX) -> None:
        """returns_max: groups whose returns are kept."""
        self._returns_max = returns_max
        self.read_unfolded: Callable[[], None] = lambda: None
        """The reader of `Unfolded.read`."""
        self._next: dict[str, int] = {}
        self._claims: OrderedDict[str, str] = OrderedDict()
        self._returns: OrderedDict[str, GroupReturns] = OrderedDict()
        self._lock = threading.Lock()

    def next_ordinal(self, order: str) -> int:
        """The first ordinal behind all that were opened."""
        return self._next.get(order, 0)

    def note(self, opening: GroupRecord | GroupOpened) -> None:
        """Take in that a group was opened, or is about to be: its ordinal is the first event's. One in no order counts nowhere."""
        order = order_of(opening.group_id, opening.ordinal)
        if order is None or opening.ordinal is None:
            return
        returns = returns_of(order, opening.ordinal, opening)
        event_id = opening.envelope.event_id if isinstance(opening, GroupOpened) else opening.declared_event_id
        with self._lock:
            self._next[order] = max(self.next_ordinal(order), opening.ordinal + 1)
            if event_id:
                self._claims.setdefault(opening.group_id, event_id)
            if len(self._claims) > CLAIMS_MAX:
                self._claims.popitem(last=False)
            if returns is not None:
                self._keep(opening.group_id, returns)

    def _keep(self, group_id: str, returns: GroupReturns) -> None:
        self._returns[group_id] = returns
        self._returns.move_to_end(group_id)
        if len(self._returns) > self._returns_max:
            self._returns.popitem(last=False)

    def task_returns(self, order: str) -> dict[str, list[list[float]]]:
        """Returns the lowest and the highest return of the latest
        groups of each task, by its digest, in the order of ordinals.

        Of groups that the pool has forgotten a gateway that was
        started since knows none.
        """
        with self._lock:
            groups = sorted(each for each in self._returns.values() if each.order == order)
        tasks = defaultdict[str, list[list[float]]](list)
        for group in groups:
            tasks[group.task].append([group.lowest, group.highest])
        return {task: pairs[-TASK_GROUPS_MAX:] for task, pairs in tasks.items()}

    def is_taken(self, opening: GroupOpened) -> bool:
        """Returns whether the ordinal was opened, by another event than this one."""
        order = order_of(opening.group_id, opening.ordinal)
        if order is None or opening.ordinal is None or opening.ordinal >= self.next_ordinal(order):
            return False
        return self._claims.get(opening.group_id) != opening.envelope.event_id


def returns_of(order: str, ordinal: int, group: GroupRecord | GroupOpened) -> GroupReturns | None:
    """Returns what the members of a ready group earned.

    None: it is not ready, one of its ready members has no return
    yet, or nobody knows its task.
    """
    if isinstance(group, GroupOpened):
        return None
    ready = [member.return_total for member in group.members if member.ready]
    returns = [value for value in ready if value is not None]
    if not group.ready or group.task is None or not returns or len(returns) < len(ready):
        return None
    task = json_digest(orjson.loads(group.task))
    return GroupReturns(ordinal, order, task, min(returns), max(returns))


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
