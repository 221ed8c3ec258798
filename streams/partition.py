"""Everything derived of one partition, in memory: facts in, one batch of records out per flush. Pure: no I/O, no clock.

Invariant: what a batch holds, together with the batches before it, is what the records up to `offsets` say; batch and
position are written in one transaction. A fact that comes again changes nothing; a poison record makes one dead letter.

Memory: groups that a reactor may have to act on, and the last `resting_max` of the others, without tokens. Older ones are
only on the shelf, a local copy of what is in the pool; a late fact brings its group back.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import structlog

from datapool import FOLD_VERSION
from datapool.errors import RecordOverfull, UnusableFact
from datapool.fold.bounds import RECORD_BYTES_MAX
from datapool.fold.digests import call_digest
from datapool.fold.fold import flag, fold
from datapool.fold.project import GroupImage, PoolRow, RowKey, Rows, changes, image
from datapool.fold.restore import restore
from datapool.fold.state import Fact, GroupState
from datapool.fold.step import tokens
from datapool.fold.trainable import FOLD_BUG
from datapool.fold.validation import check_place, usable
from eventlog.dead_letters import dead_letter
from eventlog.records import Outgoing, Record
from schemas.cloudevents import headers
from schemas.codec import decode, encode
from schemas.errors import UndecodableRecord
from schemas.events import (
    CallCaptured,
    FactPosition,
    GroupRecord,
    StepTokens,
    StreamPosition,
    TrajectoryEvicted,
    TrajectoryRecord,
)
from schemas.keys import group_key, tokens_key
from schemas.topics import GROUPS, POSITIONS, STEPS, TRAJECTORIES
from streams.cold_store import Shelf, ShelfRow
from streams.reactors import Untouched, lacks_rewards

log = structlog.get_logger()

Outcome = Literal["folded", "poison", "fold_bug"]
Fold = Callable[[GroupState | None, Fact, FactPosition], GroupState]
POOL = {topic.name: topic for topic in (STEPS, TRAJECTORIES, GROUPS)}
READER = "streams"
RESTING_MAX = 200
"""Groups at rest that stay in memory: late facts come soon or not at all."""
FLAG_BYTES = 1 << 10
"""What a row that is full may take more when it is flagged."""
SMALL_CAPTURE_BYTES = RECORD_BYTES_MAX - (256 << 10)
"""Of such a capture the row of its tokens has room for any key, in which a character of an id may take 12 bytes."""
KEY_SHOWN = 200
SEARCHES_MAX = 50
"""Facts of a group and flush that are each found alone among those that no row can be made with."""
UNTOUCHED_MAX = 50
"""Old groups that one look takes from the shelf: bounds the time in which nothing else of the worker moves."""


class PendingTokens(NamedTuple):
    """Tokens on their way from the fact to their row; dropped when another capture of the call wins before the flush."""

    group_id: str
    trajectory_id: str
    call_id: str
    record: StepTokens


class FoldedFact(NamedTuple):
    """A fact that is in the state and in no batch yet."""

    record: Record
    fact: Fact
    again: bool
    """Delivered before: whatever it had to say is in the state, or its dead letter exists."""
    parked: bool = False
    """The fold raised on it: what it speaks of is flagged."""


class Sound(NamedTuple):
    """How many facts have a state whose rows can be made, that state with its image, and what the next fact breaks."""

    facts: int
    image: GroupImage | None
    state: GroupState | None
    bug: Exception | None
    """None: there is no next."""


class PartitionState:
    """The groups of one partition and what is not written of them yet."""

    def __init__(
        self,
        partition: int,
        partitions: int,
        *,
        offsets: Mapping[str, int] | None = None,
        groups: Mapping[str, GroupState] | None = None,
        waiting: Iterable[str] = (),
        fold: Fold = fold,
        shelf: Shelf | None = None,
        resting_max: int = RESTING_MAX,
    ) -> None:
        """partitions: of every topic. offsets: full topic name -> next. waiting: ids of groups a reactor may act on.

        Without a shelf every group stays in memory. With one, it holds the rows of all groups that are not given.
        """
        self.partition = partition
        self._shelf = shelf
        self._resting_max = resting_max
        self._resting: dict[str, None] = {}
        self.groups: dict[str, GroupState] = dict(groups or {})
        self.folded = 0
        self._fold = fold
        self._partitions = partitions
        self._offsets: dict[str, int] = dict(offsets or {})
        self._images: dict[str, GroupImage] = {}
        self._waiting = set(waiting)
        self._dirty: dict[str, list[FoldedFact]] = {}
        self._tokens: dict[bytes, PendingTokens] = {}
        self._letters: list[Outgoing] = []
        self._moved = False

    @property
    def pending(self) -> bool:
        """Whether something happened that no batch holds yet."""
        return self._moved

    def expected(self, topic: str) -> int:
        """The offset that comes next. topic: full name."""
        return self._offsets.get(topic, 0)

    def advance(self, topic: str, offset: int) -> None:
        """Everything below `offset` is folded or is no record."""
        if offset > self.expected(topic):
            self._offsets[topic] = offset
            self._moved = True

    def apply(self, record: Record) -> Outcome:
        """Fold one record. A record that cannot be folded becomes a dead letter; nothing is raised for it."""
        again = record.offset < self.expected(record.topic)
        try:
            outcome: Outcome = self._take(record, again)
        except (UndecodableRecord, UnusableFact) as poison:
            outcome = "poison"
            if not again:
                self._bury(record, poison.reason, str(poison))
        self.advance(record.topic, record.offset + 1)
        self._moved = True
        self.folded += 1
        return outcome

    def _take(self, record: Record, again: bool) -> Outcome:
        fact = usable(record.event())
        check_place(fact, record.key, record.partition, self._partitions)
        if fact.group_id not in self._dirty and self._known(fact.group_id):
            self._image(fact.group_id)  # of what is written, before it changes
        self._dirty.setdefault(fact.group_id, [])
        return self._fold_or_flag(FoldedFact(record, fact, again))

    def _fold_or_flag(self, one: FoldedFact) -> Outcome:
        """Whatever a fold does wrong parks that one fact (architecture, promise 4)."""
        group_id, position = one.fact.group_id, _position_of(one.record)
        before = self.groups.get(group_id)
        try:
            _check_tokens(one)
            self.groups[group_id] = self._fold(before, one.fact, position)
        except Exception as bug:  # noqa: BLE001 - a bug in a fold is not known by type
            self._park(before, one, bug)
            self._dirty[group_id].append(one._replace(parked=True))
            return "fold_bug"
        self._dirty[group_id].append(one)
        if isinstance(one.fact, CallCaptured):
            self._keep_tokens(one.fact, position)
        return "folded"

    def _park(self, before: GroupState | None, one: FoldedFact, bug: Exception) -> GroupState | None:
        """The group with what the fact speaks of flagged. A fact that comes again changes nothing: it was settled."""
        if one.again:
            return before
        flagged = self.groups[one.fact.group_id] = flag(before, one.fact)
        if isinstance(bug, RecordOverfull):
            self._bury(one.record, "record_too_large", str(bug))
            return flagged
        log.error("streams_fold_bug", group_id=one.fact.group_id, fact=type(one.fact).__name__, exc_info=bug)
        self._bury(one.record, "fold_bug", f"{type(bug).__name__}: {bug}")
        return flagged

    def _keep_tokens(self, fact: CallCaptured, position: FactPosition) -> None:
        trajectory = self.groups[fact.group_id].trajectories.get(fact.trajectory_id)
        step = trajectory.steps.get(fact.call_id) if trajectory is not None else None
        if step is not None and step.capture is not None and step.capture.position == position:
            ids = (fact.group_id, fact.trajectory_id, fact.call_id)
            self._tokens[tokens_key(*ids)] = PendingTokens(*ids, tokens(fact, step.capture.digest))

    def _bury(self, record: Record, reason: str, error: str) -> None:
        log.warning(
            "streams_dead_letter", topic=record.topic, partition=record.partition, offset=record.offset, reason=reason
        )
        self._letters.append(dead_letter(record, reason, error, reader=READER))

    def _known(self, group_id: str) -> bool:
        """Whether the group has a state; one that was put away is in memory again afterwards."""
        if group_id not in self.groups and self._shelf is not None:
            self.groups |= restore(decode(value) for value in self._shelf.group(group_key(group_id)))
        return group_id in self.groups

    def _image(self, group_id: str) -> GroupImage:
        if group_id not in self._images:
            self._images[group_id] = image(self.groups[group_id])
        return self._images[group_id]

    def snapshot(self, now_us: int) -> list[Outgoing]:
        """The batch of everything since the last one: pool rows, dead letters, position. Resets what is pending."""
        rows: Rows = {}
        shelved: list[ShelfRow] = []
        for group_id in list(self._dirty):
            of_group = self._project(group_id)
            shelved += _shelf_rows(group_id, of_group)
            rows |= of_group
            self._watch(self._images[group_id].record)
        rows |= self._token_rows()
        batch = [self._outgoing(key, row) for key, row in rows.items()]
        batch += [*self._letters, self._position(now_us)]
        self._dirty, self._tokens, self._letters, self._moved = {}, {}, [], False
        self._put_away(shelved)
        return batch

    def _put_away(self, rows: list[ShelfRow]) -> None:
        """Groups that rest, the longest untouched first, leave the memory: everything of them is written."""
        if self._shelf is None:
            return
        self._shelf.write(rows)
        while len(self._resting) > self._resting_max:
            oldest = next(iter(self._resting))
            del self._resting[oldest], self.groups[oldest], self._images[oldest]

    def _project(self, group_id: str) -> Rows:
        """What changed of a group. A state that cannot be projected is built again without the facts that spoil it."""
        before = self._images.get(group_id)
        try:
            self._images[group_id], rows = _writable(before, self.groups[group_id])
        except Exception:  # noqa: BLE001 - as above
            self._isolate(group_id, before)
            # What is flagged instead may make a full row some words larger: there is room for them.
            self._images[group_id], rows = changes(before, self.groups[group_id])
        return rows

    def _isolate(self, group_id: str, before: GroupImage | None) -> None:
        """Fold the facts since the last batch once more, and park each after which no rows can be made.

        Each search costs some projections, and meanwhile the worker does nothing else: after `SEARCHES_MAX` of them a fact
        takes those of its trajectory with it that have not been tried.
        """
        state, rest, searches = before.state if before is not None else None, self._dirty[group_id], 0
        while rest:
            found = self._sound(before, state, rest)
            before, state, rest, searches = found.image, found.state, rest[found.facts :], searches + 1
            if found.bug is not None:
                spoilt, rest = _with_its_like(rest) if searches > SEARCHES_MAX else (rest[:1], rest[1:])
                for one in spoilt:
                    state = _flagged(state, one) if one.parked else self._park(state, one, found.bug)
        if state is not None:
            self.groups[group_id] = state
        self._keep_tokens_again(group_id)

    def _keep_tokens_again(self, group_id: str) -> None:
        """A capture that was parked has no tokens to write, and the one that it had outdone has them again."""
        self._tokens = {key: one for key, one in self._tokens.items() if one.group_id != group_id}
        for one in self._dirty[group_id]:
            if isinstance(one.fact, CallCaptured):
                self._keep_tokens(one.fact, _position_of(one.record))

    def _sound(self, image: GroupImage | None, state: GroupState | None, facts: Sequence[FoldedFact]) -> "Sound":
        """How many facts may follow `state`. image: of a state before it, whose rows can be made.

        Tried are 1, 2, 4, ... facts more and then halves of what is left: one among thousands is found with a few
        projections, of what changed since the last good one, and of thousands in a row each with one.
        """
        good, ahead, bad, bug = 0, 1, len(facts) + 1, None
        while bad - good > 1:
            upto = (good + bad) // 2 if bug is not None else min(good + ahead, len(facts))
            try:
                after = self._after(image, state, facts[good:upto])
            except Exception as raised:  # noqa: BLE001 - a bug in a fold is not known by type
                bad, bug = upto, raised
            else:
                good, (image, state), ahead = upto, after, 2 * ahead
        return Sound(good, image, state, bug)

    def _after(
        self, image: GroupImage | None, state: GroupState | None, facts: Iterable[FoldedFact]
    ) -> tuple[GroupImage | None, GroupState | None]:
        """The state after more facts, with its image. Raises whatever keeps its rows from being made."""
        for one in facts:
            state = _flagged(state, one) if one.parked else self._fold(state, one.fact, _position_of(one.record))
        return (image if state is None else _writable(image, state)[0]), state

    def _token_rows(self) -> Rows:
        rows: Rows = {}
        for key, pending in self._tokens.items():
            trajectory = self.groups[pending.group_id].trajectories.get(pending.trajectory_id)
            if trajectory is not None and pending.call_id in trajectory.steps:  # not evicted in the meantime
                rows[RowKey(STEPS.name, key)] = PoolRow(pending.record, encode(pending.record))
        return rows

    def _outgoing(self, key: RowKey, row: PoolRow | None) -> Outgoing:
        topic = POOL[key.topic]
        if row is None:
            return Outgoing.tombstone(topic, key.key, self.partition)
        return Outgoing(
            topic=topic, key=key.key, value=row.value, headers=headers(row.record), partition=self.partition
        )

    def _position(self, now_us: int) -> Outgoing:
        position = StreamPosition(
            partition=self.partition,
            offsets=dict(sorted(self._offsets.items())),
            fold_version=FOLD_VERSION,
            updated_at_us=now_us,
        )
        return Outgoing.of(POSITIONS, str(self.partition).encode(), position, self.partition)

    def _watch(self, record: GroupRecord) -> None:
        self._resting.pop(record.group_id, None)
        if waits(record):
            self._waiting.add(record.group_id)
        else:
            self._waiting.discard(record.group_id)
            self._resting[record.group_id] = None

    def untouched(self, before_us: int) -> list[Untouched]:
        """Groups without a fact since, as of the last snapshot, the oldest first; at most `UNTOUCHED_MAX` are looked at."""
        shelf = self._shelf
        found: list[Untouched] = []
        for value in shelf.untouched(before_us, UNTOUCHED_MAX) if shelf is not None else ():
            record = decode(value)
            assert shelf is not None  # or there were no rows
            assert isinstance(record, GroupRecord)  # only these have an age
            group = group_key(record.group_id)
            trajectories = (decode(one) for one in shelf.part(group, TRAJECTORIES.name))
            left = [one for one in trajectories if isinstance(one, TrajectoryRecord) and one.status != "evicted"]
            if not left or record.last_progress_us > before_us:
                shelf.touch(GROUPS.name, group, record.last_progress_us if left else None)
            elif record.group_id not in self._dirty:
                found.append(Untouched(record, left))
        return found

    def close(self) -> None:
        """Give the shelf's disk space back."""
        if self._shelf is not None:
            self._shelf.close()

    def waiting(self) -> list[GroupImage]:
        """Groups that only time can move on, as of the last snapshot."""
        idle = [group_id for group_id in sorted(self._waiting) if group_id not in self._dirty]
        return [self._image(group_id) for group_id in idle if self._known(group_id)]


def _with_its_like(facts: Sequence[FoldedFact]) -> tuple[list[FoldedFact], list[FoldedFact]]:
    """The first fact with all others of its trajectory, and the rest: an eviction, too, which makes room."""
    first, *others = facts
    like = [one for one in others if _is_like(first, one)]
    return [first, *like], [one for one in others if not _is_like(first, one)]


def _is_like(first: FoldedFact, one: FoldedFact) -> bool:
    return _trajectory_of(one) == _trajectory_of(first) and not isinstance(one.fact, TrajectoryEvicted)


def _trajectory_of(one: FoldedFact) -> str | None:
    return getattr(one.fact, "trajectory_id", None)


def _flagged(state: GroupState | None, one: FoldedFact) -> GroupState | None:
    """After a fact that is parked: once more, where it was delivered again, it says nothing."""
    return state if one.again else flag(state, one.fact)


def _writable(before: GroupImage | None, state: GroupState) -> tuple[GroupImage, Rows]:
    """`changes`. Raises RecordOverfull for a row that the log may not take."""
    after, rows = changes(before, state)
    for key, row in rows.items():
        if row is not None:
            _check_size(key.key, row.value, FLAG_BYTES if FOLD_BUG in getattr(row.record, "reasons", ()) else 0)
    return after, rows


def _check_tokens(one: FoldedFact) -> None:
    """Raises RecordOverfull for a capture that was packed so well, or has such ids, that the row of its tokens is too large."""
    fact = one.fact
    if isinstance(fact, CallCaptured) and len(one.record.value or b"") > SMALL_CAPTURE_BYTES:
        key = tokens_key(fact.group_id, fact.trajectory_id, fact.call_id)
        _check_size(key, encode(tokens(fact, call_digest(fact))))


def _check_size(key: bytes, value: bytes, more: int = 0) -> None:
    size = len(key) + len(value)
    if size > RECORD_BYTES_MAX + more:
        raise RecordOverfull(f"the row {key[:KEY_SHOWN].decode('utf-8', 'replace')} would have {size} bytes")


def _shelf_rows(group_id: str, rows: Rows) -> list[ShelfRow]:
    group = group_key(group_id)
    return [ShelfRow(key.topic, key.key, group, row and row.value, _touched_us(row)) for key, row in rows.items()]


def _touched_us(row: PoolRow | None) -> int | None:
    return row.record.last_progress_us if row is not None and isinstance(row.record, GroupRecord) else None


def _position_of(record: Record) -> FactPosition:
    return FactPosition(topic=record.topic, partition=record.partition, offset=record.offset)


def waits(record: GroupRecord) -> bool:
    """Whether a reactor may have to act on a group one day."""
    held = any(member.status == "open" for member in record.members)
    if record.closed:
        return held
    if record.ready:
        return record.declared and lacks_rewards(record)
    return record.declared or held
