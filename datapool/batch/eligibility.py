"""The decision whether a run may train a group now, and if not, why. Pure.

Invariant: the spec alone decides what a batch may contain; every condition on a group can be read in
its reason. `wait` may change, `never` will not for this run, `foreign` concerns another run or another spec. Each filter
of a spec that looks at a whole group is one row of `GROUP_FILTERS` (docs/changing.md).
"""

import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass
from typing import Literal

from claw_r1.datapool.batch.candidates import REWARD_REQUIRED, Pool, PooledGroup, all_equal, with_members
from claw_r1.datapool.batch.masks import TAGS_MISSING, UNANNOTATED, AnnotatedStep
from claw_r1.datapool.batch.members import (
    baseline_only,
    masks,
    may_be_trained,
    newest_version,
    plan_bytes,
    response_tokens,
)
from claw_r1.datapool.batch.shares import environment_of_group
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.fold import bounds
from claw_r1.datapool.fold.readiness import EVICTED, is_evicted
from claw_r1.schemas.evaluation import reaches
from claw_r1.schemas.events import GroupRecord
from claw_r1.schemas.http import Channel


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a group is not chosen. `wait`: it may be chosen later; `never`: skip it for good;
    `foreign`: not for this run."""

    kind: Literal["wait", "never", "foreign"]
    reason: str


@dataclass(frozen=True, slots=True)
class Eligibility:
    """The decision of a run about a group's rows at any version; made once per row, since
    reading steps takes long."""

    refusal: Refusal | None
    """The reason why it is not chosen at any version."""
    oldest_version: int | None = None
    """Version of the oldest token."""
    newest_version: int | None = None
    """Version of the youngest token that would be trained; known under `stale: tokens` alone."""
    unless_stale: Refusal | None = None
    """The reason why it is not chosen even where it is not too stale; a group that is too stale
    has that reason instead."""
    response_tokens: int = 0
    """Sampled tokens that a batch would train of it."""
    plan_bytes: int = 0
    """Bytes that it would take of a plan."""

    def refusal_at(self, version: int, spec: BatchSpec) -> Refusal | None:
        """Returns why the group is not chosen at a version; None: it may be."""
        deciding = self.oldest_version if spec.stale == "group" else self.newest_version
        stale = _staleness(deciding, version, spec) if spec.policy == "own" else None
        return self.refusal or stale or self.unless_stale


CHANGING = Refusal("wait", "rows_changing")
"""Not to be remembered: the next look finds other rows."""
UNREADY_MEMBERS = frozenset({"no_ready_member", "members_missing"})
"""Reasons of a group that its ready members decide: where others count, too, `_size` decides."""
NUMBER = re.compile(r"\d+")
TOO_STALE = "too_stale"
ENVIRONMENT_FULL = "environment_full"
"""Word of a group that waits while its environment has all its groups of a batch, and others lack some."""
ADMITTED_CHANNEL = Channel.TRAIN
"""Groups of other channels take no room of a run (`gateway/control/admission.py`)."""


def word_of(reason: str) -> str:
    """Returns the part of a reason that this code chose, to count by: without numbers, and without names behind it."""
    return NUMBER.sub("N", reason.partition(":")[0])


def eligible(pool: Pool, record: GroupRecord, spec: BatchSpec, version: int, run_id: str) -> PooledGroup | Refusal:
    """The group with its members if this run may train it now, else why not."""
    eligibility, group = eligibility_of(pool, record, spec, run_id)
    return eligibility.refusal_at(version, spec) or group or CHANGING


def eligibility_of(
    pool: Pool, record: GroupRecord, spec: BatchSpec, run_id: str
) -> tuple[Eligibility, PooledGroup | None]:
    """Decides whether a run may train a group, and returns the group too where its members were read."""
    refusal = _record_refusal(record, spec, run_id)
    if refusal is not None:
        return Eligibility(refusal), None
    group = with_members(pool, record, spec)
    if group is None:
        return Eligibility(CHANGING), None
    return _of_members(group, spec, run_id), group


def _record_refusal(record: GroupRecord, spec: BatchSpec, run_id: str) -> Refusal | None:
    """Decides by the group's own row alone."""
    if record.run_id not in (None, run_id) and spec.policy == "own":
        return Refusal("foreign", "other_run")
    if is_evicted(record):  # its room is back already: gateways read the stub
        return Refusal("foreign", EVICTED)
    if record.channel != spec.channel:
        return _of_other_channel(record, run_id)
    excluded = ", ".join(sorted(set(spec.tags_exclude) & set(record.tags)))
    if excluded and record.run_id == run_id:  # nothing takes a group's own tag back: its room need not wait
        return Refusal("never", f"tags_excluded: {excluded}")
    if (unshared := _of_environment(record, spec, run_id)) is not None:
        return unshared
    counts_others = spec.policy == "any" or spec.unfinished != "drop"
    waits_for = set(record.reasons) - (UNREADY_MEMBERS if counts_others else set())
    if waits_for:
        return Refusal("wait", "not_ready: " + ", ".join(sorted(waits_for)))
    return Refusal("foreign", f"tags_excluded: {excluded}") if excluded else None


def _of_environment(record: GroupRecord, spec: BatchSpec, run_id: str) -> Refusal | None:
    """A group of an environment without a share. If it has no opening, which has the tags, one may still come."""
    if not spec.environments or (name := environment_of_group(record)) in spec.environments:
        return None
    own: Literal["wait", "never"] = "never" if record.declared else "wait"
    return Refusal(own if record.run_id == run_id else "foreign", f"environment_without_share: {name or 'none'}")


def _of_other_channel(record: GroupRecord, run_id: str) -> Refusal:
    """A group that was opened for this run holds its room, where its channel is the one that counts. A call may name the
    spec's channel yet, as long as the group is not ready."""
    holds_room = record.declared and record.run_id == run_id and record.channel == ADMITTED_CHANNEL
    return Refusal(
        "never" if holds_room and record.ready else "foreign", f"other_channel: {record.channel or 'unknown'}"
    )


def _of_members(group: PooledGroup, spec: BatchSpec, run_id: str) -> Eligibility:
    """Staleness comes before the size and the tags of an own group: one that never gets them gets too old."""
    runs = {member.record.policy_run_id for member in group.members}
    own = group.record.run_id == run_id or run_id in runs
    tags = _tags(group, spec, own=own)
    policy = _policy(runs, run_id, own=own) if spec.policy == "own" else None
    filtered = (refusal for group_filter in GROUP_FILTERS if (refusal := group_filter(group, spec)))
    unless_stale = tags or next(filtered, None)
    refusal = policy if own else tags or policy
    may_be_chosen = not (refusal or unless_stale)
    versions = (member.record.min_version for member in group.members)
    return Eligibility(
        refusal,
        oldest_version=min((version for version in versions if version is not None), default=None),
        newest_version=newest_version(group, spec) if spec.stale == "tokens" else None,
        unless_stale=unless_stale,
        response_tokens=response_tokens(group, spec) if may_be_chosen else 0,
        plan_bytes=plan_bytes(group, spec) if may_be_chosen else 0,
    )


def _tags(group: PooledGroup, spec: BatchSpec, *, own: bool) -> Refusal | None:
    """Not `never`: a curation may give its steps the tags yet. How many may wait for that, `crowding` decides."""
    required = frozenset(spec.tags)
    missing = sorted(required - frozenset(group.record.tags))
    steps = (AnnotatedStep(step, member) for member in group.members for step in member.steps)
    if not missing or any(required <= step.tags for step in steps):
        return None
    return Refusal("wait" if own else "foreign", f"{TAGS_MISSING}: {', '.join(missing)}")


def crowding(
    refused: Iterable[tuple[GroupRecord, Refusal]], spec: BatchSpec, run_id: str, *, full: bool = False
) -> Iterator[GroupRecord]:
    """Finds, among the groups that wait for tags or for other environments, those that the run must not wait for because they
    take its room: the oldest, so that a whole batch of groups that it can train can always be opened beside the others.

    If they held all of it, nothing would end their wait: no batch, no version, so none gets too
    stale. full: the batch is whole, and the next one takes groups of the same environments.
    """
    words = (TAGS_MISSING,) if full else (TAGS_MISSING, ENVIRONMENT_FULL)
    waiting = [record for record, refusal in refused if refusal.kind == "wait" and refusal.reason.startswith(words)]
    takes_room = [record for record in waiting if record.declared and record.run_id == run_id]
    newest = sorted(takes_room, key=lambda record: (record.last_progress_us, record.group_id), reverse=True)
    yield from newest[spec.staleness_max * spec.groups_per_batch :]


def _policy(runs: Set[str | None], run_id: str, *, own: bool) -> Refusal | None:
    if runs <= {run_id}:
        return None
    # A group that was opened for this run counts against its capacity, so the run must give it back.
    others = ", ".join(sorted(str(run) for run in runs - {run_id}))
    return Refusal("never" if own else "foreign", f"policy_of_other_run: {others}")


def _staleness(oldest_version: int | None, version: int, spec: BatchSpec) -> Refusal | None:
    stale = 0 if oldest_version is None else version - oldest_version
    if stale < 0:
        # A version that this run has not made yet: another history of the same run id (a restored log, for example).
        return Refusal("never", f"sampled_by_unknown_version_{oldest_version}")
    return Refusal("never", TOO_STALE) if stale > spec.staleness_max else None


def _size(group: PooledGroup, spec: BatchSpec) -> Refusal | None:
    ready, record = len(group.members) + len(group.dropped), group.record
    enough = ready >= spec.estimator.members_min
    if record.closed:
        return None if enough else Refusal("never", f"closed_with_{ready}_ready")
    size = record.expected_size or spec.group_size
    if ready < size:
        return Refusal("wait", f"members_{ready}_of_{size}")
    return None if enough else Refusal("never", "declared_with_one_member")


def _dropped(group: PooledGroup, spec: BatchSpec) -> Refusal | None:
    """Refuses a group that has too few members left: what is dropped then is missing in the baseline."""
    if len(group.members) >= spec.estimator.members_min:
        return None
    reasons = sorted(set(group.dropped.values()))
    words = {reason.partition(":")[0] for reason in reasons}
    word = words.pop() if len(words) == 1 else "dropped"
    slots = ", ".join(reason.partition(": ")[2] or reason for reason in reasons if reason != word)
    counts = f"{word}_{len(group.dropped)}_of_{len(group.members) + len(group.dropped)}"
    return Refusal("never", f"{counts}: {slots}" if slots else counts)


def _reward_required(group: PooledGroup, spec: BatchSpec) -> Refusal | None:
    """Waits for required rewards while the group is open: who lacks a reward was dropped."""
    waiting = [member for member in group.members if member.lacks] if spec.rewards_required else []
    slots = ", ".join(sorted({slot for member in waiting for slot in member.lacks}))
    return Refusal("wait", f"{REWARD_REQUIRED}_for_{len(waiting)}: {slots}") if waiting else None


def _reward_missing(group: PooledGroup, spec: BatchSpec) -> Refusal | None:
    missing = len(group.members) - len(group.returns) if spec.needs_returns else 0
    if missing and group.record.closed:  # the time for its rewards is over
        return Refusal("never", "reward_missing")
    return Refusal("wait", f"reward_missing_for_{missing}") if missing else None


def _reward_mean(group: PooledGroup, spec: BatchSpec) -> Refusal | None:
    if not group.returns:
        return None
    mean = statistics.fmean(group.returns)
    if spec.reward_mean_min is not None and not reaches(mean, spec.reward_mean_min):
        return Refusal("never", "reward_mean_low")
    if spec.reward_mean_max is not None and not reaches(spec.reward_mean_max, mean):
        return Refusal("never", "reward_mean_high")
    return None


def _zero_variance(group: PooledGroup, spec: BatchSpec) -> Refusal | None:
    return Refusal("never", "zero_variance") if spec.zero_variance == "drop" and all_equal(group.returns) else None


def _unannotated(group: PooledGroup, spec: BatchSpec) -> Refusal | None:
    """Waits until all members that might be trained are annotated: which are the best may depend on what is missing."""
    if spec.quality_missing != "wait":
        return None
    missing = [mask.word for mask in masks(group, spec) if mask.word.startswith(UNANNOTATED)]
    if not missing:
        return None
    scorers = sorted({word.removeprefix(UNANNOTATED).removeprefix(": ") for word in missing} - {""})
    return Refusal("wait", f"{UNANNOTATED}_for_{len(missing)}" + (f": {', '.join(scorers)}" if scorers else ""))


def _response_tokens(group: PooledGroup, spec: BatchSpec) -> Refusal | None:
    tokens = response_tokens(group, spec)
    if tokens == 0:
        # Without those that nobody could train.
        words = {mask.word.partition(":")[0] for mask in masks(group, spec) if mask.word != "not_trainable"}
        reasons = words if may_be_trained(group, spec) else {*baseline_only(group, spec).values()}
        return Refusal("never", "nothing_trainable: " + ", ".join(sorted(reasons)))
    if spec.response_tokens_max is not None and tokens > spec.response_tokens_max:
        return Refusal("never", "larger_than_response_tokens_max")
    return None


def _plan_bytes(group: PooledGroup, spec: BatchSpec) -> Refusal | None:
    return Refusal("never", "larger_than_a_plan") if plan_bytes(group, spec) > bounds.PLAN_BYTES_MAX else None


GroupFilter = Callable[[PooledGroup, BatchSpec], Refusal | None]
GROUP_FILTERS: tuple[GroupFilter, ...] = (
    _size,
    _dropped,
    _reward_required,
    _reward_missing,
    _reward_mean,
    _zero_variance,
    _unannotated,
    _response_tokens,
    _plan_bytes,
)
"""In the order in which they are asked; the first refusal is the group's reason. Each may take what those before it
refuse for granted: from `_reward_mean` on, every member has a return, where the spec needs one."""
