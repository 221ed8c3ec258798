"""The number of groups that a run may have under way: bounded staleness without waste.

A group that is opened now is trained at the earliest after the groups before it. While fewer than (staleness + 1) x
groups_per_batch groups are under way, the newest of them is still within the staleness bound. Under way is a group that
was opened, that is in no published weights, and that may still be trained.

It keeps the ids of groups in the pool, and of those opened a moment ago: with a group's eviction its id
is forgotten, wherever it stands. Plans are read before the pool, so that no old plan brings such an id back.

Only groups that somebody declared count, and those that this process has just admitted: other traffic never reserved
room, so it takes none and could give none back.

A group is of the run that opened it, and takes that run's room alone. `run_of` knows the declared groups of the pool and
what this process opened. Two gateways that are asked for one group by two runs, before either reads of the other's in the
pool, both open it; then the later word is the declaration (docs/pool.md), and the other run's room comes back.

Input: `datapool.groups`, `training.batches`; a replay only rebuilds the numbers. `apply` runs on a
follower's thread, the rest on the event loop: a lock guards both. Several gateways come to the same numbers, but each may
admit one group too many before it reads of the groups that the others have admitted.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import structlog
from msgspec.structs import replace

from claw_r1.datapool.batch.plan import groups_of
from claw_r1.datapool.fold.readiness import is_evicted
from claw_r1.eventlog.records import Record
from claw_r1.gateway.control.task_orders import Orders
from claw_r1.schemas.codec import decode, event_name
from claw_r1.schemas.errors import UndecodableRecord
from claw_r1.schemas.events import (
    BatchAssembled,
    BatchSkipped,
    BatchTrained,
    Event,
    GroupMember,
    GroupRecord,
    RunStarted,
)
from claw_r1.schemas.http import Channel

COUNTED = ("GroupRecord", "RunStarted", "BatchSkipped", "BatchTrained")
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Admitted:
    """The group may be opened; `counted` says whether this decision counted it, or an earlier one had."""

    counted: bool = True


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now; `reason` is a short stable word."""

    reason: str


def admit(under_way: int, staleness: int, groups_per_batch: int) -> Admitted | Wait:
    """Decides whether one more group of a run may be opened.

    under_way: training groups of the run that are opened and may still be trained. staleness: versions that a sample may
    be behind.
    """
    return Admitted() if under_way < (staleness + 1) * groups_per_batch else Wait("capacity")


@dataclass(slots=True)
class _Run:
    staleness: int | None = None
    groups_per_batch: int = 0
    incarnation: int = -1
    opened: set[str] = field(default_factory=set)
    aside: set[str] = field(default_factory=set)
    """Opened for it, too, and taking no room: groups of other channels, or opened without
    admission a moment ago."""
    over: set[str] = field(default_factory=set)
    """The groups that are in published weights, or skipped for good."""
    barren: set[str] = field(default_factory=set)
    """The groups that will never be trained unless somebody judges a member yet (`is_barren`)."""
    under_way: set[str] = field(default_factory=set)
    """The opened groups that are in neither of the two."""

    def has(self, group_id: str) -> bool:
        """Returns whether the group was opened for this run."""
        return group_id in self.opened or group_id in self.aside

    def forget(self, group_id: str) -> None:
        """The group is none of this run's."""
        for ids in (self.opened, self.aside, self.over, self.barren, self.under_way):
            ids.discard(group_id)

    def place(self, group_id: str) -> None:
        """Counts the group as under way, or no longer, by where it is."""
        is_under_way = group_id in self.opened and group_id not in self.over and group_id not in self.barren
        (self.under_way.add if is_under_way else self.under_way.discard)(group_id)

    def end(self, group_ids: Iterable[str]) -> None:
        """These groups are trained, or skipped for good."""
        self.over.update(group_ids)
        self.under_way.difference_update(group_ids)


class AdmissionView:
    """The groups of each run, as the log has them, and the groups that this process has just opened."""

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}
        self._holders: dict[str, tuple[str, ...]] = {}
        """The runs that have something of a group, by its id: a row then costs the same beside however many runs."""
        self._plans: dict[bytes | None, bytes] = {}
        """By key of its topic the plan that is not trained yet: a BatchTrained without `group_ids` means those of it."""
        self._lock = threading.Lock()
        self.orders = Orders()
        self.on_group: Callable[[GroupRecord], None] = lambda _: None
        """Called with every row of a group as well, so that whoever else counts groups need not read the topic again."""

    def apply(self, record: Record) -> None:
        """Count one record of the two topics."""
        try:
            name = event_name(record.value) if record.value is not None else ""
            if name == BatchAssembled.__name__ and record.value is not None:
                self._plans[record.key] = record.value
            if name not in COUNTED:
                return
            event = record.event()
            if isinstance(event, BatchTrained):
                event = _naming_its_groups(event, self._plans.pop(record.key, None))
        except UndecodableRecord as broken:
            log.warning("admission_record_undecodable", topic=record.topic, offset=record.offset, reason=broken.reason)
            return
        if isinstance(event, GroupRecord):
            self.orders.note(event)
            self.on_group(event)
        with self._lock:
            self._take(event)

    def reserve(self, run_id: str, group_id: str) -> Admitted | Wait:
        """Decide on a group, and count it as opened when it is admitted. A group already counted is admitted again."""
        with self._lock:
            run = self._runs.get(run_id)
            if run is None or run.staleness is None:
                return Wait("run_unknown")
            if group_id in run.opened:
                return Admitted(counted=False)
            decision = admit(len(run.under_way), run.staleness, run.groups_per_batch)
            if isinstance(decision, Admitted):
                self._holding(run_id, [group_id]).opened.add(group_id)
                run.place(group_id)
            return decision

    def note(self, run_id: str, group_id: str) -> bool:
        """Take note of a group that is opened for a run and reserves no room; False: it was known as the run's."""
        with self._lock:
            if self._run(run_id).has(group_id):
                return False
            self._holding(run_id, [group_id]).aside.add(group_id)
            return True

    def release(self, run_id: str, group_id: str) -> None:
        """Take a reservation or a note back: the group could not be written."""
        with self._lock:
            self._forget(group_id, [run_id])

    def run_of(self, group_id: str) -> str | None:
        """The run that a group was opened for, as far as this process knows."""
        with self._lock:
            holders = self._holders.get(group_id, ())
            return next((run_id for run_id in holders if self._runs[run_id].has(group_id)), None)

    def _take(self, event: Event) -> None:
        match event:
            case GroupRecord() if is_evicted(event):
                self._forget(event.group_id, self._holders.get(event.group_id, ()))
            case GroupRecord(run_id=str() as run_id):
                if event.declared:
                    self._forget_others(run_id, event.group_id)
                if event.declared or self._run(run_id).has(event.group_id):
                    _group(self._holding(run_id, [event.group_id]), event)
            case RunStarted():
                _started(self._run(event.run_id), event)
            case BatchSkipped():
                self._holding(event.run_id, event.group_ids).end(event.group_ids)
            case BatchTrained():  # in one transaction with the weights that it made
                self._holding(event.run_id, event.group_ids).end(event.group_ids)
            case _:
                pass

    def _forget_others(self, run_id: str, group_id: str) -> None:
        """A group that two runs opened is of one of them, and the other's room comes back."""
        self._forget(group_id, [name for name in self._holders.get(group_id, ()) if name != run_id])

    def _forget(self, group_id: str, run_ids: Sequence[str]) -> None:
        for run_id in run_ids:
            self._run(run_id).forget(group_id)
        left = tuple(run_id for run_id in self._holders.pop(group_id, ()) if run_id not in run_ids)
        if left:
            self._holders[group_id] = left

    def _holding(self, run_id: str, group_ids: Iterable[str]) -> _Run:
        """The run, which is about to take these groups into its sets."""
        for group_id in group_ids:
            holders = self._holders.get(group_id, ())
            if run_id not in holders:
                self._holders[group_id] = (*holders, run_id)
        return self._run(run_id)

    def _run(self, run_id: str) -> _Run:
        return self._runs.setdefault(run_id, _Run())


def _group(run: _Run, record: GroupRecord) -> None:
    takes_room = record.channel == Channel.TRAIN  # once a call of the group names another channel, it stays there
    (run.aside if takes_room else run.opened).discard(record.group_id)
    (run.opened if takes_room else run.aside).add(record.group_id)
    (run.barren.add if is_barren(record) else run.barren.discard)(record.group_id)
    run.place(record.group_id)


def is_barren(record: GroupRecord) -> bool:
    """Returns whether nobody can train the group as it is: no member is ready, and it is closed or each of its members
    has ended without an outcome. It need not wait for its deadline then: a burst of failed episodes would hold all room
    for so long.

    A judgement that comes later makes a member ready, and the group takes room again. A closed group whose members gave up
    takes none either: a run that counts them (`unfinished`) trains it all the same, and one that does not never skips it.
    """
    if any(member.ready for member in record.members):
        return False
    all_here = record.expected_size is not None and len(record.members) >= record.expected_size
    return record.closed or (all_here and all(map(_is_fruitless, record.members)))


def _is_fruitless(member: GroupMember) -> bool:
    """Returns whether a member that is not ready never will be: a failed one was not judged, and what it earned on the
    way makes it no data. An abandoned one that earned something may be trained (`unfinished`), a completed one may wait
    for its reward."""
    if member.status == "abandoned":
        return member.return_total is None or member.min_version is None
    return member.status in ("failed", "evicted")


def _naming_its_groups(event: BatchTrained, planned: bytes | None) -> BatchTrained:
    """The event with the groups of its plan. Raises UndecodableRecord where it needs a plan that is none."""
    plan = None if event.group_ids or planned is None else decode(planned)
    if not isinstance(plan, BatchAssembled) or plan.sequence != event.sequence:
        return event
    return replace(event, group_ids=groups_of(plan))


def _started(run: _Run, event: RunStarted) -> None:
    if event.incarnation >= run.incarnation:
        run.incarnation = event.incarnation
        run.staleness, run.groups_per_batch = event.staleness_max, event.groups_per_batch
