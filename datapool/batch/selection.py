"""Whether a run may train a group now, and if not, why. Pure.

Invariant: the spec alone decides what a batch may contain; nothing about a group is asked that a person cannot read in
its reason. `wait` may change, `never` will not for this run, `foreign` concerns another run or another spec.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from datapool.batch.advantages import Return
from datapool.batch.returns import judged
from datapool.batch.spec import BatchSpec
from datapool.fold import bounds as room
from datapool.fold.bounds import name_bytes
from schemas.events import GroupRecord, StepRecord, TrajectoryRecord
from schemas.http import Channel

Members = Sequence[tuple[TrajectoryRecord, Sequence[StepRecord]]]
"""Rows of one moment: a trajectory with its captured steps in order, each once, in order of trajectory_id."""


class Pool(Protocol):
    """What selection reads; `datapool.view.view.PoolView` is one."""

    def groups(self) -> Sequence[GroupRecord]:
        """Every group whose rows fit together, ready or not."""

    def members(self, record: GroupRecord) -> Members | None:
        """The ready members as this row of their group names them; None where the pool has moved on since."""


@dataclass(frozen=True, slots=True)
class PooledTrajectory:
    """A ready member with its captured steps, in order."""

    record: TrajectoryRecord
    steps: tuple[StepRecord, ...]
    judged: Return | None
    """What it earned under the spec; None: nobody said."""
    tags: frozenset[str] = frozenset()
    """Its own and its group's; each step carries them."""


@dataclass(frozen=True, slots=True)
class PooledGroup:
    """A group with its ready members in order of trajectory_id."""

    record: GroupRecord
    members: tuple[PooledTrajectory, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a group is not chosen. `wait`: may still come; `never`: skip it for good; `foreign`: not for this run."""

    kind: Literal["wait", "never", "foreign"]
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run says of a group's rows at whatever version: to be made once per row, since reading steps takes long."""

    refusal: Refusal | None
    """At any version."""
    oldest: int | None = None
    """Version of the oldest token."""
    unless_stale: Refusal | None = None
    """Where it is not too stale."""
    response_tokens: int = 0
    """What a batch would train of it."""
    plan_bytes: int = 0
    """What it would take of a plan."""

    def at(self, version: int, spec: BatchSpec) -> Refusal | None:
        """Why the group is not chosen at a version; None: it may be."""
        return self.refusal or _judge_staleness(self.oldest, version, spec) or self.unless_stale


CHANGING = Refusal("wait", "rows_changing")
"""Not to be remembered: the next look finds other rows."""
TAGS_MISSING = "tags_missing"


def judge(pool: Pool, record: GroupRecord, spec: BatchSpec, version: int, run_id: str) -> PooledGroup | Refusal:
    """The group with its members if this run may train it now, else why not."""
    verdict, group = weigh(pool, record, spec, run_id)
    return verdict.at(version, spec) or group or CHANGING


def weigh(pool: Pool, record: GroupRecord, spec: BatchSpec, run_id: str) -> tuple[Verdict, PooledGroup | None]:
    """What a run says of a group, and the group where its members were looked at."""
    refusal = _judge_record(record, spec, run_id)
    if refusal is not None:
        return Verdict(refusal), None
    group = with_members(pool, record, spec)
    if group is None:
        return Verdict(CHANGING), None
    return _judge_members(group, spec, run_id), group


def _judge_record(record: GroupRecord, spec: BatchSpec, run_id: str) -> Refusal | None:
    if record.run_id not in (None, run_id):
        return Refusal("foreign", "other_run")
    if record.channel != spec.channel:
        return _of_other_channel(record, run_id)
    excluded = ", ".join(sorted(set(spec.tags_exclude) & set(record.tags)))
    if excluded and record.run_id == run_id:  # nothing takes a group's own tag back: its room need not wait
        return Refusal("never", f"tags_excluded: {excluded}")
    if not record.ready:
        return Refusal("wait", "not_ready: " + ", ".join(record.reasons))
    return Refusal("foreign", f"tags_excluded: {excluded}") if excluded else None


def _of_other_channel(record: GroupRecord, run_id: str) -> Refusal:
    """A group that was opened for this run holds its room, where its channel is the one that counts. A call may name the
    spec's channel yet, as long as the group is not ready."""
    holds_room = record.declared and record.run_id == run_id and record.channel == Channel.TRAIN
    return Refusal("never" if holds_room and record.ready else "foreign", f"channel_{record.channel or 'unknown'}")


def with_members(pool: Pool, record: GroupRecord, spec: BatchSpec) -> PooledGroup | None:
    """Rows of the ready members, or None where the pool moved on since `record` was read."""
    members = pool.members(record)
    if members is None:
        return None
    return PooledGroup(record, tuple(member_of(record, row, steps, spec) for row, steps in members))


def member_of(
    group: GroupRecord, row: TrajectoryRecord, steps: Sequence[StepRecord], spec: BatchSpec
) -> PooledTrajectory:
    """A member as the spec sees it. steps: captured, in order."""
    tags = frozenset((*group.tags, *row.tags))
    return PooledTrajectory(row, tuple(steps), judged(row, steps, spec), tags)


def _judge_members(group: PooledGroup, spec: BatchSpec, run_id: str) -> Verdict:
    """Staleness comes before the size and the tags of an own group: one that never gets them gets too old."""
    runs = {member.record.policy_run_id for member in group.members}
    own = group.record.run_id == run_id or run_id in runs
    tags, policy = _judge_tags(group, spec, own=own), _judge_policy(runs, run_id, own=own)
    unless_stale = (
        tags
        or _judge_size(group, spec)
        or _judge_returns(group, spec)
        or _judge_missing(group, spec)
        or _judge_tokens(group, spec)
        or _judge_plan(group, spec)
    )
    refusal = policy if own else tags or policy
    may_be_chosen = not (refusal or unless_stale)
    return Verdict(
        refusal,
        oldest=min((m.record.min_version for m in group.members if m.record.min_version is not None), default=None),
        unless_stale=unless_stale,
        response_tokens=response_tokens(group, spec) if may_be_chosen else 0,
        plan_bytes=plan_bytes(group, spec) if may_be_chosen else 0,
    )


def _judge_tags(group: PooledGroup, spec: BatchSpec, *, own: bool) -> Refusal | None:
    """Not `never`: a curation may give its steps the tags yet. How many may wait for that, `crowding` says."""
    wanted = frozenset(spec.tags)
    missing = sorted(wanted - frozenset(group.record.tags))
    if not missing or any(wanted <= tags_of(step, member) for member in group.members for step in member.steps):
        return None
    return Refusal("wait" if own else "foreign", f"{TAGS_MISSING}: {', '.join(missing)}")


def crowding(refused: Iterable[tuple[GroupRecord, Refusal]], spec: BatchSpec, run_id: str) -> Iterator[GroupRecord]:
    """Of the groups that wait for tags those that the run must not wait for, because they take its room: the oldest, so
    that a whole batch of groups with the tags can always be opened beside the others.

    Nothing else would end their wait when they hold all of it: no batch, no new version, so none gets too stale.
    """
    waiting = [
        record for record, refusal in refused if refusal.kind == "wait" and refusal.reason.startswith(TAGS_MISSING)
    ]
    takes_room = [record for record in waiting if record.declared and record.run_id == run_id]
    newest = sorted(takes_room, key=lambda record: (record.last_progress_us, record.group_id), reverse=True)
    yield from newest[spec.staleness_max * spec.groups_per_batch :]


def _judge_policy(runs: Set[str | None], run_id: str, *, own: bool) -> Refusal | None:
    if runs <= {run_id}:
        return None
    # A group that was opened for this run counts against its capacity, so the run must give it back.
    others = ", ".join(sorted(str(run) for run in runs - {run_id}))
    return Refusal("never" if own else "foreign", f"policy_of_other_run: {others}")


def _judge_size(group: PooledGroup, spec: BatchSpec) -> Refusal | None:
    ready, record = len(group.members), group.record
    enough = ready >= spec.members_min
    if record.closed:
        return None if enough else Refusal("never", f"closed_with_{ready}_ready")
    wanted = record.expected_size or spec.group_size
    if ready < wanted:
        return Refusal("wait", f"members_{ready}_of_{wanted}")
    return None if enough else Refusal("never", "declared_with_one_member")


def _judge_staleness(oldest: int | None, version: int, spec: BatchSpec) -> Refusal | None:
    stale = 0 if oldest is None else version - oldest
    if stale < 0:
        # A version that this run has not made yet: another history of the same run id (a restored log, for example).
        return Refusal("never", f"sampled_by_unknown_version_{oldest}")
    return Refusal("never", "too_stale") if stale > spec.staleness_max else None


def _judge_returns(group: PooledGroup, spec: BatchSpec) -> Refusal | None:
    known = returns(group)
    if len(known) < len(group.members):
        if group.record.closed:  # the time for its rewards is over
            return Refusal("never", "reward_missing")
        return Refusal("wait", f"reward_missing_for_{len(group.members) - len(known)}")
    mean = sum(known) / len(known)
    if spec.reward_mean_min is not None and mean < spec.reward_mean_min:
        return Refusal("never", "reward_mean_low")
    if spec.reward_mean_max is not None and mean > spec.reward_mean_max:
        return Refusal("never", "reward_mean_high")
    if spec.zero_variance == "drop" and all_equal(known):
        return Refusal("never", "zero_variance")
    return None


def returns(group: PooledGroup) -> list[float]:
    """Of the members that were judged."""
    return [member.judged.total for member in group.members if member.judged is not None]


def all_equal(known: Sequence[float]) -> bool:
    """Whether several returns are one: a baseline over them leaves nothing to learn."""
    return len(known) > 1 and max(known) == min(known)


def _judge_missing(group: PooledGroup, spec: BatchSpec) -> Refusal | None:
    """Of all members that might be trained: which are the best may depend on what is missing."""
    if spec.quality_missing != "wait":
        return None
    missing = [found.word for found in _unfit(group, spec) if found.word.startswith(MISSING)]
    if not missing:
        return None
    named = sorted({word.removeprefix(MISSING).removeprefix(": ") for word in missing} - {""})
    return Refusal("wait", f"{MISSING}_for_{len(missing)}" + (f": {', '.join(named)}" if named else ""))


def _judge_tokens(group: PooledGroup, spec: BatchSpec) -> Refusal | None:
    tokens = response_tokens(group, spec)
    if tokens == 0:
        # Without those that nobody could train.
        words = {found.word.partition(":")[0] for found in _unfit(group, spec) if found.word != "not_trainable"}
        why_not = {"return_low"} if not _good(group, spec) else words
        return Refusal("never", "nothing_trainable: " + ", ".join(sorted(why_not)))
    if spec.response_tokens_max is not None and tokens > spec.response_tokens_max:
        return Refusal("never", "larger_than_response_tokens_max")
    return None


def _judge_plan(group: PooledGroup, spec: BatchSpec) -> Refusal | None:
    return Refusal("never", "larger_than_a_plan") if plan_bytes(group, spec) > room.PLAN_BYTES_MAX else None


def plan_bytes(group: PooledGroup, spec: BatchSpec) -> int:
    """What the group takes of a plan, at most: members by id, and the calls of those that are trained."""
    members = sum(name_bytes(member.record.trajectory_id) for member in group.members)
    steps = sum(
        PLANNED_STEP_BYTES + name_bytes(step.call_id) + name_bytes(step.position.topic)
        for member in trained_members(group, spec)
        for step in member.steps
        if step.position is not None
    )
    return len(group.members) * (PLANNED_MEMBER_BYTES + name_bytes(group.record.group_id)) + members + steps


def response_tokens(group: PooledGroup, spec: BatchSpec) -> int:
    """Sampled tokens of the group that would be trained."""
    steps = ((step, member) for member in trained_members(group, spec) for step in member.steps)
    return sum(step.response_length for step, member in steps if is_trained(step, member, spec))


def trained_members(group: PooledGroup, spec: BatchSpec) -> list[PooledTrajectory]:
    """Those that `baseline_only` does not name, in order of trajectory_id."""
    others = baseline_only(group, spec)
    return [member for member in group.members if member.record.trajectory_id not in others]


def baseline_only(group: PooledGroup, spec: BatchSpec) -> dict[str, str]:
    """trajectory_id -> why it counts in baselines and is not trained: `return_low`, `nothing_trainable` (all its calls are
    context only) or `not_among_best`."""
    if spec.return_min is None and spec.best_of is None and not spec.asks_of_steps:
        return {}  # a member is ready, so that some call of it is trainable
    why_not = {member.record.trajectory_id: "return_low" for member in group.members}
    good = _good(group, spec)
    why_not |= {member.record.trajectory_id: "nothing_trainable" for member in good}
    good = [member for member in good if any(is_trained(step, member, spec) for step in member.steps)]
    why_not |= {member.record.trajectory_id: "not_among_best" for member in good}
    # The sort is stable, so of equal returns the first id stays.
    for member in sorted(good, key=lambda member: -(member.judged.total if member.judged else 0.0))[: spec.best_of]:
        del why_not[member.record.trajectory_id]
    return why_not


def _good(group: PooledGroup, spec: BatchSpec) -> list[PooledTrajectory]:
    """Members that `return_min` leaves."""
    return [
        member
        for member in group.members
        if spec.return_min is None or (member.judged is not None and member.judged.total >= spec.return_min)
    ]


MISSING = "quality_missing"
PLANNED_MEMBER_BYTES, PLANNED_STEP_BYTES = 64, 128
"""Of a plan beside ids and topics: numbers, a digest, lengths."""


class ContextOnly(NamedTuple):
    """Why a step is not trained: `word` to count by, `says` for a person."""

    word: str
    says: str


def is_trained(step: StepRecord, member: PooledTrajectory, spec: BatchSpec) -> bool:
    """Whether the response of a member's step is trained; otherwise it is context only."""
    return context_only(step, member, spec) is None


def context_only(step: StepRecord, member: PooledTrajectory, spec: BatchSpec) -> ContextOnly | None:
    """Why a step of a member that is trained is context only; None where its response is trained."""
    if not step.trainable or step.position is None:
        return ContextOnly("not_trainable", ", ".join(step.reasons))
    if not spec.asks_of_steps:
        return None
    return _tagged_out(step, member, spec) or next(_judged_low(step, spec), None)


def _tagged_out(step: StepRecord, member: PooledTrajectory, spec: BatchSpec) -> ContextOnly | None:
    tags = tags_of(step, member)
    for tag in sorted(frozenset(spec.tags) - tags):
        return ContextOnly(f"{TAGS_MISSING}: {tag}", f"neither it nor its trajectory or group carries the tag {tag}")
    for tag in sorted(frozenset(spec.tags_exclude) & tags):
        return ContextOnly(f"tags_excluded: {tag}", f"it, its trajectory or its group carries the tag {tag}")
    return None


def _judged_low(step: StepRecord, spec: BatchSpec) -> Iterator[ContextOnly]:
    """What is missing comes last: no score helps a step that another one keeps out."""
    quality, scores = (step.curation.quality, step.curation.scores) if step.curation is not None else (None, {})
    if spec.quality_min is not None and quality is not None and quality < spec.quality_min:
        yield ContextOnly("quality_low", f"quality {quality:g} is below {spec.quality_min:g}")
    for scorer, bounds in sorted(spec.scores.items()):
        score = scores.get(scorer)
        if score is not None and bounds.min is not None and score < bounds.min:
            yield ContextOnly(f"quality_low: {scorer}", f"{scorer} {score:g} is below {bounds.min:g}")
        if score is not None and bounds.max is not None and score > bounds.max:
            yield ContextOnly(f"quality_high: {scorer}", f"{scorer} {score:g} is above {bounds.max:g}")
    if spec.quality_missing == "pass":
        return
    if spec.quality_min is not None and quality is None and not scores:
        yield ContextOnly(MISSING, "nobody judged its quality")
    for scorer in sorted(spec.scores.keys() - scores.keys()):
        yield ContextOnly(f"{MISSING}: {scorer}", f"{scorer} has not looked at it")


def tags_of(step: StepRecord, member: PooledTrajectory) -> frozenset[str]:
    """What a step carries: as captured, by curation, and with its trajectory and group."""
    return member.tags.union(step.tags, step.curation.tags if step.curation is not None else ())


def _unfit(group: PooledGroup, spec: BatchSpec) -> Iterator[ContextOnly]:
    """Why steps of those that might be trained are context only."""
    for member in _good(group, spec):
        for step in member.steps:
            if found := context_only(step, member, spec):
                yield found
