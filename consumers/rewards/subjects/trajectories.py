"""A trajectory's row and its captured calls as subjects. Pure: equal facts give equal subjects, in whatever order they came.

A row is judged once it is completed or failed, with exactly the calls that its completion counted; an abandoned one is never
trained, and never judged.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from msgspec.structs import replace

from claw_r1.consumers.rewards.judged import Judged, JudgedCall, Scope
from claw_r1.consumers.rewards.subjects.assembling import counts, judged_calls, main_line, parsed_json, said, successors
from claw_r1.consumers.rewards.subjects.subject import (
    ATTEMPTS,
    Subject,
    Target,
    Unjudgeable,
    attempt_of,
    call_content,
    digest_of,
)
from claw_r1.datapool.delta_decoding import bodies
from claw_r1.datapool.fold.step import tools_in_use
from claw_r1.schemas.events import CallCaptured, GroupRecord, TrajectoryRecord

INCOMPLETE = {"calls_missing", "calls_uncounted"}


def is_over(row: TrajectoryRecord) -> bool:
    """Returns whether nothing more is to come: it ended, with as many calls as its completion counted."""
    return row.status in ATTEMPTS and not INCOMPLETE & {*row.reasons}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryFacts:
    """A row, its group's, and the calls that the row counts, in its order."""

    partition: int
    row: TrajectoryRecord
    group: GroupRecord | None
    calls: tuple[CallCaptured, ...] = ()
    flaw: Unjudgeable | None = None
    """The reason why its calls are not available."""
    pure: bool = True
    call_bytes_max: int = 1_500_000
    subject_bytes_max: int = 64 << 20
    memo: dict[str, JudgedCall] = field(default_factory=dict, compare=False)
    """Its texts, once they were put together: each turn of a long trajectory asks for them."""
    links: dict[str, str] = field(default_factory=dict, compare=False)
    """Its `successors`, once they were computed."""

    @property
    def counted(self) -> list[CallCaptured]:
        """Calls that are judged."""
        in_use = tools_in_use(self.calls)
        return [call for call in self.calls if counts(call, in_use=in_use)]

    @property
    def traceparents(self) -> tuple[str | None, ...]:
        """The trace contexts of the calls that are judged."""
        return tuple([call.envelope.traceparent for call in self.counted])

    @property
    def after(self) -> Mapping[str, str]:
        """Call -> the call that goes on with it, of those that are judged."""
        if not self.links:
            self.links.update(successors(self.counted))
        return self.links

    @property
    def task(self) -> str | None:
        """JSON: its own, else its group's."""
        return self.row.task if self.row.task is not None or self.group is None else self.group.task

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the trajectory and its group."""
        return tuple(sorted({*self.row.tags, *(self.group.tags if self.group is not None else ())}))

    def attempt(self, status: str) -> int:
        """Rank of a verdict that sees the trajectory with this status."""
        declared = self.group is not None and self.group.declared
        return attempt_of(status, registered=bool(self.row.registered_event_id), declared=declared)

    def identity(self) -> tuple[str, ...]:
        """Part of the digest where content alone does not decide, and where there is no content."""
        ids = (self.row.group_id, self.row.trajectory_id)
        return () if self.pure and self.flaw is None else (*ids, *(map(str, self.row.offsets) if self.flaw else ()))

    def registered(self) -> Sequence[str | bytes | None]:
        """Returns the content of the registration, beside the calls."""
        return (self.task, self.row.metadata, str(len(self.tags)), *self.tags)

    @property
    def informed_us(self) -> int:
        """Time of a verdict on all that is there, in microseconds: later with each call that is judged, and with a later end."""
        counted = self.counted
        return max(self.row.status_us, *(call.timings.received_us for call in counted), 0) + len(counted)

    def content(self) -> str:
        """sha256 hex of everything that a scorer may look at."""
        calls = [digest_of(call_content(call)) for call in self.counted]
        return digest_of([*self.registered(), self.row.status, str(len(calls)), *calls, *self.identity()])

    def texts(self) -> dict[str, JudgedCall]:
        """Its calls by id, in order. Raises Unjudgeable."""
        if self.flaw is not None:
            raise self.flaw
        if not self.counted:
            raise Unjudgeable("no_calls", "no completed call of its main work")
        size = sum(call.request.full_length + len(call.response_body) for call in self.counted)
        if size > self.subject_bytes_max:
            raise Unjudgeable("too_large", f"{size} bytes of calls, and at most {self.subject_bytes_max} are judged")
        if not self.memo:
            requests = bodies({call.call_id: call for call in self.calls})
            counted, bytes_max = self.counted, self.call_bytes_max
            self.memo.update(judged_calls(counted, requests, self.after, bytes_max=bytes_max, pure=self.pure))
        return self.memo

    def whole(self, scope: Scope) -> Judged:
        """Returns the trajectory as one conversation. Raises Unjudgeable."""
        texts = self.texts()
        return self._judged(scope, tuple(texts.values()), texts[main_line(self.counted, self.after)[-1]])

    def turn(self, call_id: str, scope: Scope) -> Judged:
        """One call, for `next` with its successors. Raises Unjudgeable."""
        one = self.texts()[call_id]
        turn = self._judged(scope, (one if scope == "next" else replace(one, after=None),), one)
        # What comes later than the next turn is not part of it: it is judged while the trajectory goes on.
        return turn if one.after is None else replace(turn, status="open")

    def _judged(self, scope: Scope, calls: tuple[JudgedCall, ...], last: JudgedCall) -> Judged:
        return Judged(
            scope=scope,
            group_id=self.row.group_id,
            trajectory_id=self.row.trajectory_id,
            calls=calls,
            conversation=tuple(said(last)),
            task=parsed_json(self.task),
            metadata=parsed_json(self.row.metadata),
            tags=self.tags,
            status=str(self.row.status),
        )


def subjects_of(facts: TrajectoryFacts, scope: Scope, *, over: bool | None = None) -> Iterator[Subject]:
    """Yields the subjects of every scope but `group` that the facts hold. over: no more facts follow; None: as
    its row says."""
    ended = is_over(facts.row) if over is None else over
    if scope in ("call", "next"):
        yield from _turns(facts, scope, ended)
    elif ended:
        row = facts.row
        calls = [call.call_id for call in facts.counted] or (row.calls if facts.flaw is not None else ())
        steps = tuple(Target(row.trajectory_id, call_id) for call_id in calls)
        yield Subject(
            partition=facts.partition,
            group_id=row.group_id,
            trajectory_id=row.trajectory_id,
            targets=steps if scope == "steps" else (Target(row.trajectory_id),),
            digest=digest_of([scope, facts.content()]),
            occurred_at_us=facts.informed_us,
            attempt=facts.attempt(row.status),
            run_id=row.run_id,
            traceparents=facts.traceparents,
            slots=frozenset(slot.event_id for slot in row.rewards),
            assemble=partial(facts.whole, scope),
        )


def _turns(facts: TrajectoryFacts, scope: Scope, over: bool) -> Iterator[Subject]:
    """Each call with a later call written against it at once; all others when the trajectory is over.

    The successor of a call is certain only at the end if the next request repeats everything.
    """
    if facts.flaw is not None:
        yield from (_turn(facts, call_id, None, None, scope) for call_id in (facts.row.calls if over else ()))
        return
    calls = {call.call_id: call for call in facts.counted}
    for call_id, call in calls.items():
        later = calls.get(facts.after.get(call_id, ""))
        if over or (later is not None and later.prompt.base_call_id == call_id):
            yield _turn(facts, call_id, call, later, scope)


def _turn(
    facts: TrajectoryFacts, call_id: str, call: CallCaptured | None, later: CallCaptured | None, scope: Scope
) -> Subject:
    row = facts.row
    content = call_content(call) if call is not None else (call_id,)
    end = later.request.full_digest if later is not None else row.status
    certain = later is not None and later.prompt.base_call_id == call_id
    own = () if facts.pure and facts.flaw is None else (*facts.identity(), call_id)
    return Subject(
        partition=facts.partition,
        group_id=row.group_id,
        trajectory_id=row.trajectory_id,
        call_id=call_id,
        targets=(Target(row.trajectory_id, call_id),),
        digest=digest_of(["next", *facts.registered(), *content, end, *own]),
        occurred_at_us=later.timings.received_us if later is not None and certain else facts.informed_us,
        attempt=facts.attempt("continued" if certain else row.status),
        run_id=row.run_id,
        traceparents=() if call is None else (call.envelope.traceparent,),
        assemble=partial(facts.turn, call_id, scope),
    )


def group_is_over(group: GroupRecord) -> bool:
    """Returns whether all expected members are there: closed, or as many as it was declared with; and none is open."""
    ended = [member for member in group.members if member.status in ATTEMPTS]
    size = group.expected_size
    complete = group.closed or (size is not None and len(ended) >= size)
    return complete and bool(ended) and not any(member.status == "open" for member in group.members)


def group_subject(group: GroupRecord, partition: int, members: Sequence[TrajectoryFacts], *, pure: bool) -> Subject:
    """All members that are over beside each other. members: by trajectory_id."""
    ids, contents = () if pure else (group.group_id,), [facts.content() for facts in members]
    return Subject(
        partition=partition,
        group_id=group.group_id,
        targets=tuple(Target(facts.row.trajectory_id) for facts in members),
        digest=digest_of(["group", group.task, str(len(group.tags)), *group.tags, *contents, *ids]),
        occurred_at_us=max(facts.informed_us for facts in members) + sum(1 + len(facts.counted) for facts in members),
        attempt=attempt_of("completed", registered=True, declared=group.declared),
        run_id=group.run_id,
        traceparents=tuple([each for facts in members for each in facts.traceparents]),
        assemble=partial(_beside, group, members),
    )


def _beside(group: GroupRecord, members: Sequence[TrajectoryFacts]) -> Judged:
    if group.members_left_out:
        raise Unjudgeable("too_large", f"{group.members_left_out} members that the group's row has no room for")
    return Judged(
        scope="group",
        group_id=group.group_id,
        members=tuple(facts.whole("trajectory") for facts in members),
        task=parsed_json(group.task),
        tags=group.tags,
        status="completed",
    )


def signature(row: TrajectoryRecord) -> tuple[object, ...]:
    """Equal for rows with equal judgements. The group's task comes before its trajectories, or not at all."""
    return (hash(row.offsets), is_over(row), row.status_event_id, row.registered_event_id)


def by_call(
    row: TrajectoryRecord, facts: Sequence[CallCaptured | Unjudgeable]
) -> tuple[tuple[CallCaptured, ...], Unjudgeable | None]:
    """The calls at the row's offsets in order, and why they cannot be had, where one of them cannot."""
    flaw = next((fact for fact in facts if isinstance(fact, Unjudgeable)), None)
    calls = tuple(fact for fact in facts if isinstance(fact, CallCaptured))
    if any((call.group_id, call.trajectory_id) != (row.group_id, row.trajectory_id) for call in calls):
        return (), Unjudgeable("text_lost", "its row names offsets of other trajectories: it is of another log")
    return calls, flaw
