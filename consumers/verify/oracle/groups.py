"""The record of a group: its members, what it waits for, and the spread of their returns."""

import math
from collections.abc import Mapping, Sequence

from claw_r1.consumers.verify.oracle import bounds
from claw_r1.consumers.verify.oracle.conflicts import channel_of, content_of, newest, of_kind, run_ids, sign_of_life
from claw_r1.consumers.verify.oracle.digests import joined, sha
from claw_r1.consumers.verify.oracle.soundness import PooledFact
from claw_r1.consumers.verify.oracle.steps import StepFields
from claw_r1.consumers.verify.oracle.trajectories import ExpectedTrajectory
from claw_r1.schemas.codec import encode
from claw_r1.schemas.events import GroupClosed, GroupEvicted, GroupMember, GroupOpened, GroupRecord

Trajectories = Mapping[str, ExpectedTrajectory]


def group_record(group_id: str, facts: Sequence[PooledFact], trajectories: Trajectories) -> GroupRecord:
    opened, closed = newest(of_kind(facts, GroupOpened)), newest(of_kind(facts, GroupClosed))
    members = _closed_members(closed, trajectories) if closed else _open_members(trajectories)
    left_out = 0 if closed else sum(rows.is_member for rows in trajectories.values()) - len(members)
    reasons = _reasons(members, left_out, None if closed else opened)
    progress_us, progress_id = sign_of_life(facts)
    return GroupRecord(
        group_id=group_id,
        channel=channel_of(facts),
        members=tuple(members),
        members_left_out=left_out,
        ready=not reasons,
        reasons=tuple(sorted(reasons)),
        last_progress_event_id=progress_id,
        last_progress_us=progress_us,
        digest=joined([(member.trajectory_id, member.digest) for member in members]),
        **run_ids(opened, facts, "declared"),
        **_declaration(opened),
        **_closing(closed),
        **_returns([member for member in members if member.ready]),
    )


def stub(eviction: GroupEvicted, facts: Sequence[PooledFact]) -> GroupRecord:
    """All that is left of an evicted group."""
    opened = newest(of_kind(facts, GroupOpened))
    declaration = _declaration(opened)
    kept = ("declared", "declared_event_id", "declared_us", "declared_revision", "ordinal")
    return GroupRecord(
        group_id=eviction.group_id,
        ready=False,
        reasons=("evicted",),
        evicted_event_id=eviction.envelope.event_id,
        evicted_us=eviction.envelope.occurred_at_us,
        evicted_reason=eviction.reason,
        **run_ids(opened, facts, "declared"),
        **{name: declaration[name] for name in kept if name in declaration},
    )


def _closed_members(closed: GroupClosed, trajectories: Trajectories) -> list[GroupMember]:
    """Returns the members that the closing lists, known or not."""
    return [_closed_member(name, trajectories.get(name)) for name in sorted(set(closed.members))]


def _closed_member(trajectory_id: str, rows: ExpectedTrajectory | None) -> GroupMember:
    if rows is None:
        return GroupMember(trajectory_id=trajectory_id, status="unknown", ready=False, digest="")
    return _member(rows)


def _open_members(trajectories: Trajectories) -> list[GroupMember]:
    names = sorted(name for name, rows in trajectories.items() if rows.is_member)
    fitting = names[: bounds.room(names, bounds.MEMBERS_BYTES, bounds.BYTES_PER_MEMBER)]
    return [_member(trajectories[name]) for name in fitting]


def _member(rows: ExpectedTrajectory) -> GroupMember:
    record = rows.record
    return GroupMember(
        trajectory_id=record.trajectory_id,
        status=record.status if rows.is_member else "unknown",
        ready=record.ready,
        return_total=record.return_total,
        min_version=record.min_version,
        max_version=record.max_version,
        digest=sha(encode(record)),
    )


def _reasons(members: Sequence[GroupMember], left_out: int, declared: GroupOpened | None) -> set[str]:
    """Returns why the group is not ready. declared: None also where a closing replaced the declaration."""
    ready = sum(member.ready for member in members)
    expected = declared.expected_size if declared else None
    checks = {
        "too_many_members": left_out > 0,
        "members_open": any(member.status == "open" for member in members),
        "no_ready_member": ready == 0,
        "members_missing": expected is not None and ready < expected,
    }
    return {reason for reason, holds in checks.items() if holds}


def _declaration(opened: GroupOpened | None) -> StepFields:
    if opened is None:
        return {"declared": False}
    at = opened.envelope
    word = {"declared_event_id": at.event_id, "declared_us": at.occurred_at_us, "declared_revision": opened.revision}
    return {"declared": True, **word, **content_of(opened)}


def _closing(closed: GroupClosed | None) -> StepFields:
    if closed is None:
        return {}
    at, members = closed.envelope, tuple(sorted(set(closed.members)))
    return {"closed": True, "closed_event_id": at.event_id, "closed_us": at.occurred_at_us, "closed_members": members}


def _returns(ready: Sequence[GroupMember]) -> StepFields:
    """Mean and sample deviation of the returns, where every ready member has one."""
    returns = [member.return_total for member in ready if member.return_total is not None]
    complete = bool(returns) and len(returns) == len(ready)
    several = complete and len(returns) > 1
    return {
        "reward_mean": math.fsum(returns) / len(returns) if complete else None,
        "reward_std": _deviation(returns) if several else None,
        "zero_variance": several and len(set(returns)) == 1,
        "min_version": min((member.min_version for member in ready if member.min_version is not None), default=None),
        "max_version": max((member.max_version for member in ready if member.max_version is not None), default=None),
    }


def _deviation(returns: Sequence[float]) -> float:
    if len(set(returns)) == 1:
        return 0.0  # to the last bit, which the formula does not promise
    mean = math.fsum(returns) / len(returns)
    return math.sqrt(math.fsum((value - mean) * (value - mean) for value in returns) / (len(returns) - 1))
