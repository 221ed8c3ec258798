"""The decisions of time alone: that a session is complete, a trajectory abandoned, a group closed or too old. Decisions
are facts.

Invariant: a decision is a function of (group, now); its event_id is uuid5 of subject, kind and the last progress, so that
two reactors, or one before and one after a crash, write the same event. Reactors are the only reader of a clock.
"""

from collections.abc import Iterable, Iterator

from claw_r1.datapool.fold.project import GroupImage
from claw_r1.datapool.fold.readiness import is_evicted
from claw_r1.datapool.fold.state import TrajectoryState
from claw_r1.schemas.envelopes import decision_id
from claw_r1.schemas.events import (
    Envelope,
    GroupClosed,
    GroupEvicted,
    GroupRecord,
    TrajectoryAbandoned,
    TrajectoryCompleted,
)

Decision = TrajectoryAbandoned | TrajectoryCompleted | GroupClosed | GroupEvicted
PRODUCER = "reactors"
DEADLINE = "deadline"
IDLE = "idle"
RETENTION = "retention"


def decide(groups: Iterable[GroupImage], now_us: int, idle_timeout_us: int) -> list[Decision]:
    """All decisions due. A group is closed only after its open members are known to be over: one round later.

    A session (a trajectory with an `idle_s` of its own) is completed after that silence, whatever the idle time.

    A ready group is closed only when a reward is missing: at its deadline, or, without one, after the idle time without
    a fact. No run would train it, so its room would never be freed.
    """
    return [decision for group in groups for decision in _group(group, now_us, idle_timeout_us)]


def outlived(untouched: Iterable[GroupRecord], now_us: int, retention_us: int) -> list[GroupEvicted]:
    """Groups without any fact for so long: they leave the pool, a stub of each stays, and so do their facts."""
    return [
        GroupEvicted(
            envelope=_envelope(
                ("evicted", group.group_id, group.last_progress_event_id),
                now_us,
                group.last_progress_event_id,
                group.run_id,
            ),
            group_id=group.group_id,
            reason=RETENTION,
            requested_by=PRODUCER,
        )
        for group in untouched
        if group.last_progress_us + retention_us <= now_us
    ]


def _group(group: GroupImage, now_us: int, idle_timeout_us: int) -> Iterator[Decision]:
    declaration = group.state.declaration
    deadline_us = declaration.deadline_us if declaration is not None else None
    late = deadline_us is not None and deadline_us <= now_us
    closing, trajectories = group.state.closing, group.state.trajectories
    counted = trajectories.keys() if closing is None else trajectories.keys() & set(closing.members)
    open_members = {
        name: trajectory
        for name in counted
        if (trajectory := trajectories[name]).known and trajectory.ending.status == "open"
    }
    for trajectory_id, trajectory in sorted(open_members.items()):
        idle_s = trajectory.registration.idle_s
        silent_us = now_us - trajectory.progress.occurred_at_us
        if idle_s is not None and idle_s * 1e6 <= silent_us:
            yield _completed(group.state.group_id, trajectory_id, trajectory)
        elif late or (idle_s is None and idle_timeout_us <= silent_us):
            yield _abandoned(group.state.group_id, trajectory_id, trajectory, DEADLINE if late else IDLE, now_us)
    if closing is not None:
        return
    idle = group.state.progress.occurred_at_us + idle_timeout_us <= now_us
    ready = group.record.ready
    patient = ready and deadline_us is not None  # judges may take longer than agents: a deadline is the time they have
    due = (late or (idle and not patient)) and (not ready or lacks_rewards(group.record))
    if declaration is not None and not open_members and due:
        yield _closed(group, DEADLINE if late else IDLE, now_us)


def lacks_rewards(group: GroupRecord) -> bool:
    """Returns whether a ready member of a ready group was never judged: nobody trains the group, and only time ends the
    wait."""
    return group.reward_mean is None


def waits(record: GroupRecord) -> bool:
    """Returns whether a reactor may have to act on a group one day. Asked at each flush, so it looks at no member."""
    if is_evicted(record):
        return False
    open_member = "members_open" in record.reasons
    if record.closed:
        return open_member
    if record.ready:
        return record.declared and lacks_rewards(record)
    return record.declared or open_member


def _completed(group_id: str, trajectory_id: str, trajectory: TrajectoryState) -> TrajectoryCompleted:
    """The end of a session, without counts or reward: a late call belongs to it, and feedback may arrive at any time.

    It is dated with the last sign of life, so that an agent's own completion, if still in transit, is later and
    counts instead.
    """
    last_us, progress = trajectory.progress
    return TrajectoryCompleted(
        envelope=_envelope(("completed", group_id, trajectory_id, progress), last_us, progress, trajectory.run_id),
        group_id=group_id,
        trajectory_id=trajectory_id,
        status="completed",
    )


def _abandoned(
    group_id: str, trajectory_id: str, trajectory: TrajectoryState, reason: str, now_us: int
) -> TrajectoryAbandoned:
    progress = trajectory.progress.event_id
    return TrajectoryAbandoned(
        envelope=_envelope(("abandoned", group_id, trajectory_id, progress), now_us, progress, trajectory.run_id),
        group_id=group_id,
        trajectory_id=trajectory_id,
        reason=reason,
        last_progress_event_id=progress,
    )


def _closed(group: GroupImage, reason: str, now_us: int) -> GroupClosed:
    """Members are all that are over, also those that failed or gave up: a spec may count them (`unfinished`, `policy: any`),
    whether it looks before the closing or after it. Who is not ready is none to the others, and may get ready yet."""
    progress = group.state.progress.event_id
    members = [member for member in group.record.members if member.status not in ("open", "evicted")]
    return GroupClosed(
        envelope=_envelope(("closed", group.state.group_id, progress), now_us, progress, group.state.run_id),
        group_id=group.state.group_id,
        members=tuple(member.trajectory_id for member in members),
        reason=reason,
        last_progress_event_id=progress,
    )


def _envelope(subject: tuple[str, ...], occurred_at_us: int, caused_by: str, run_id: str | None) -> Envelope:
    return Envelope(
        event_id=decision_id(*subject),
        occurred_at_us=occurred_at_us,
        producer=PRODUCER,
        run_id=run_id,
        causation_id=caused_by or None,
    )
