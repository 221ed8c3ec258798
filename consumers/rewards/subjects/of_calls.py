"""Subjects of scope `call`, from claw.calls.

Invariant: a counted call is one subject, regardless of later records: a call without tools before its
trajectory's first call with tools is judged, not recognised as a side call. The task is that registered before the call
in its partition, as seen by this process (of its last `OPENINGS_MAX` groups), or in the last `LOOK_BACK` records before its first one. For a
trajectory already running then, the log is read back to its registration, or `LOOK_BACK` records beyond its first call, or
beyond where it was silent for longer than `within_reach` goes.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TypeVar

import structlog

from claw_r1.consumers.rewards.config import ScoredSlot
from claw_r1.consumers.rewards.judged import Judged
from claw_r1.consumers.rewards.settings import RewardsSettings
from claw_r1.consumers.rewards.subjects.assembling import counts, judged_call, parsed_json, said
from claw_r1.consumers.rewards.subjects.log_history import LogHistory
from claw_r1.consumers.rewards.subjects.subject import Subject, Target, call_content, digest_of
from claw_r1.datapool.view.request_bodies import RequestBodies, within_reach
from claw_r1.eventlog.errors import HistoryCut
from claw_r1.eventlog.records import Place, Position, Record
from claw_r1.schemas.codec import event_name
from claw_r1.schemas.errors import UndecodableRecord
from claw_r1.schemas.events import CallCaptured, Event, GroupOpened, TrajectoryStarted
from claw_r1.schemas.http import Channel
from claw_r1.schemas.topics import CALLS

log = structlog.get_logger()

LOOK_BACK = 5_000
REGISTRATIONS_MAX = 50_000
"""Registrations that are kept: those of groups and trajectories that were called last."""
OPENINGS_MAX = 200_000
"""Groups of which it is known where in the log they were opened, for a member that begins when
others have crowded them out."""
V = TypeVar("V")
Registered = tuple[str | None, str | None, tuple[str, ...]]
"""Task and metadata as JSON, tags."""
NOT_REGISTERED: Registered = (None, None, ())


class CallSubjects:
    """Belongs to one thread."""

    topics = (CALLS,)

    def __init__(self, slot: ScoredSlot, history: LogHistory, settings: RewardsSettings) -> None:
        self._slot = slot
        self._history = history
        self._settings = settings
        self._subjects: list[Subject] = []
        self.forget()

    def add(self, record: Record) -> None:
        """One more record. The streams report undecodable ones, whose call is unknown. Raises LogError."""
        if record.partition not in self._partitions:
            self._look_back(self._earlier(record.position))
            self._partitions.add(record.partition)
        try:
            event = record.event() if record.value is not None else None
        except UndecodableRecord as error:
            log.warning("rewards_undecodable", slot=self._slot.name, position=str(record.position), reason=error.reason)
            return
        self._register(event)
        if isinstance(event, GroupOpened):
            _keep(self._openings, (event.group_id, ""), record.position, OPENINGS_MAX)
        if isinstance(event, CallCaptured):
            self._bodies.add(event, record.position)
            self._find_registration(event, record.position)
            if self._is_subject(event):
                self._subjects.append(self._subject(event, record.position))

    def take(self) -> list[Subject]:
        """Returns the subjects of the records since the last time."""
        subjects, self._subjects = self._subjects, []
        return subjects

    def forget(self, _: Collection[Place] = ()) -> None:
        """Another process may take a partition and return it later: this process's memory of it then has gaps."""
        self._bodies = RequestBodies(self._earlier, self._settings.requests_bytes_max)
        self._registered: OrderedDict[tuple[str, str], Registered] = OrderedDict()
        self._openings: OrderedDict[tuple[str, str], Position] = OrderedDict()
        self._with_tools: OrderedDict[tuple[str, str], None] = OrderedDict()
        """Trajectories of which a call with tools was seen: later ones without are side calls."""
        self._partitions: set[int] = set()

    def close(self) -> None:
        """Nothing is open."""

    def _is_subject(self, call: CallCaptured) -> bool:
        options = self._slot.options
        in_use = (call.group_id, call.trajectory_id) in self._with_tools
        if not counts(call, in_use=in_use) or not is_channel(call.channel, options.channels):
            return False
        return not options.tags or bool({*options.tags} & {*call.tags, *self._registration(call)[2]})

    def _subject(self, call: CallCaptured, at: Position) -> Subject:
        registration = self._registration(call)
        ids = () if self._slot.scorer.pure else (call.group_id, call.trajectory_id, call.call_id)
        task, metadata, tags = registration
        return Subject(
            partition=at.partition,
            group_id=call.group_id,
            trajectory_id=call.trajectory_id,
            call_id=call.call_id,
            targets=(Target(call.trajectory_id, call.call_id),),
            digest=digest_of(["call", task, metadata, str(len(tags)), *tags, *call_content(call), *ids]),
            occurred_at_us=call.timings.received_us,
            run_id=call.envelope.run_id,
            traceparents=(call.envelope.traceparent,),
            assemble=partial(self._assemble, call, at, registration),
        )

    def _assemble(self, call: CallCaptured, at: Position, registration: Registered) -> Judged:
        self._bodies.add(call, at)  # again: later ones may have crowded it out
        pure, bytes_max = self._slot.scorer.pure, self._settings.call_bytes_max
        one = judged_call(call, self._bodies.body(call, at), bytes_max=bytes_max, pure=pure)
        task, metadata, tags = registration
        return Judged(
            scope="call",
            group_id=call.group_id,
            trajectory_id=call.trajectory_id,
            calls=(one,),
            conversation=tuple(said(one)),
            task=parsed_json(task),
            metadata=parsed_json(metadata),
            tags=tags,
        )

    def _registration(self, call: CallCaptured) -> Registered:
        """(task, metadata, tags) as JSON, of the trajectory, else of its group."""
        own = self._registered.get((call.group_id, call.trajectory_id), NOT_REGISTERED)
        of_group = self._registered.get((call.group_id, ""), NOT_REGISTERED)
        return own[0] if own[0] is not None else of_group[0], own[1], tuple(sorted({*own[2], *of_group[2]}))

    def _register(self, event: Event | None, *, earlier: bool = False) -> None:
        """earlier: it is older than what is known."""
        registration: Registered
        if isinstance(event, GroupOpened):
            key, registration = (event.group_id, ""), (event.task, None, event.tags)
        elif isinstance(event, TrajectoryStarted):
            key, registration = (event.group_id, event.trajectory_id), (event.task, event.metadata, event.tags)
        else:
            if isinstance(event, CallCaptured):
                own = (event.group_id, event.trajectory_id)
                if event.has_tools or own in self._with_tools:
                    _keep(self._with_tools, own, None, REGISTRATIONS_MAX)
            return
        if not earlier or self._registered.get(key, NOT_REGISTERED) is NOT_REGISTERED:
            self._remember(key, registration)

    def _remember(self, key: tuple[str, str], registration: Registered) -> None:
        _keep(self._registered, key, registration, REGISTRATIONS_MAX)

    def _look_back(self, earlier: Iterator[Record]) -> None:
        """Looks for registrations in the `LOOK_BACK` records before. earlier: the latest first."""
        for record in islice(earlier, LOOK_BACK):
            with suppress(UndecodableRecord):
                if event_name(record.value) in ("GroupOpened", "TrajectoryStarted"):
                    self._register(record.event(), earlier=True)

    def _find_registration(self, call: CallCaptured, at: Position) -> None:
        """Once for each trajectory, and that there is none is remembered. The first call is the one that stands on no other."""
        own = (call.group_id, call.trajectory_id)
        if own not in self._registered and not _stands_alone(call):
            earlier = self._earlier(at)
            for event in within_reach(earlier, call, at):
                self._register(event, earlier=True)
                if own in self._registered or _is_first(event, call.trajectory_id):
                    break
            self._look_back(earlier)
        self._renew_group((call.group_id, ""))
        self._remember(own, self._registered.get(own, NOT_REGISTERED))

    def _renew_group(self, group: tuple[str, str]) -> None:
        """A group is known as long as anybody calls in it; if others crowded it out, its opening is read again."""
        if group in self._registered:
            self._registered.move_to_end(group)
        elif (at := self._openings.get(group)) is not None:
            self._look_back(islice(self._earlier(Position(at.topic, at.partition, at.offset + 1)), 1))

    def _earlier(self, at: Position) -> Iterator[Record]:
        with suppress(HistoryCut):
            yield from self._history.before(CALLS, at.partition, at.offset)


def _keep(memory: "OrderedDict[tuple[str, str], V]", key: tuple[str, str], value: V, entries_max: int) -> None:
    """At the end; the oldest makes room."""
    memory[key] = value
    memory.move_to_end(key)
    while len(memory) > entries_max:
        memory.popitem(last=False)


def _is_first(event: Event, trajectory_id: str) -> bool:
    return isinstance(event, CallCaptured) and event.trajectory_id == trajectory_id and _stands_alone(event)


def _stands_alone(call: CallCaptured) -> bool:
    return call.prompt.base_call_id is None and call.request.base_call_id is None


def is_channel(channel: str, options_channels: Collection[str]) -> bool:
    """Returns whether a slot of these channels judges calls on `channel`; a judge's own never."""
    return channel != Channel.JUDGE and (not options_channels or channel in options_channels)
