"""Why something is not ready, was left out, or when it was trained: one answer per group, trajectory or call of an id.

Invariant: an answer is made of the pool's rows, the runs' events and a spec, all as they are now; it guesses nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from datapool.batch.candidates import PooledGroup, member_of
from datapool.batch.eligibility import Refusal, eligible
from datapool.batch.masks import UNANNOTATED, mask_of
from datapool.batch.members import baseline_only
from datapool.batch.spec import BatchSpec
from datapool.fold.readiness import counted_calls
from datapool.view.left_out import why_left_out
from datapool.view.rows import PoolRows, as_step
from datapool.view.runs import Planned, RunIndex
from datapool.view.store import as_bytes
from schemas.events import GroupRecord, StepRecord, TrajectoryRecord

FULL_GROUP = "  {} members more than its record holds: give each task a group id of its own"
FULL_TRAJECTORY = "  {} calls more than its record holds: begin a trajectory for each task"


@dataclass(frozen=True, slots=True, kw_only=True)
class Perspective:
    """For whom: a run at a version with a spec."""

    run_id: str
    version: int
    spec: BatchSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """`state` in one word, `lines` for a person, `trained`: (run, batch, version or None) each time it was trained."""

    kind: Literal["group", "trajectory", "step"]
    ids: tuple[str, ...]
    state: Literal["trained", "planned", "skipped", "next", "left_out", "ready", "not_ready"]
    lines: tuple[str, ...]
    trained: tuple[tuple[str, int, int | None], ...] = ()


def why(rows: PoolRows, runs: RunIndex, perspective: Perspective | None, name: str) -> list[Explanation]:
    """Answers about every group, trajectory and call of that id; none when the pool knows no such id.

    perspective None: nobody trains; only readiness is explained. A trajectory that is its own group is one answer, as a trajectory.
    """
    answers: list[Explanation] = []
    group, trajectories = rows.group_row(name), rows.trajectories_named(name)
    if group is not None and not any(record.group_id == name for record in trajectories):
        answers.append(_of_group(rows, runs, perspective, group))
    answers += [_of_trajectory(rows, runs, perspective, row, rows.group_row(row.group_id)) for row in trajectories]
    for place, value in rows.store.select("c = ?", [as_bytes(name)], None, None):
        answers.append(_of_step(rows, runs, perspective, as_step(value), rows.group_row(place[0])))
    return answers


def _of_group(rows: PoolRows, runs: RunIndex, perspective: Perspective | None, group: GroupRecord) -> Explanation:
    state, lines = _fate(rows, runs, perspective, group)
    ready = sum(member.ready for member in group.members)
    size = f" of {group.expected_size}" if group.expected_size is not None else ""
    head = f"group {group.group_id}: {ready}{size} members ready" + _because(group.ready, group.reasons)
    not_ready = [
        f"  member {member.trajectory_id}: {member.status}, not ready"
        + _member_because(rows, group, member.trajectory_id)
        for member in group.members
        if not member.ready
    ]
    full = [FULL_GROUP.format(group.members_left_out)] if group.members_left_out else []
    trained = _batches(runs, group.group_id, None, None)
    return Explanation(
        kind="group", ids=(group.group_id,), state=state, lines=(head, *full, *not_ready, *lines), trained=trained
    )


def _member_because(rows: PoolRows, group: GroupRecord, trajectory_id: str) -> str:
    row = rows.trajectory(group.group_id, trajectory_id)
    return f" ({', '.join(row.reasons)})" if row is not None and row.reasons else ""


def _of_trajectory(
    rows: PoolRows, runs: RunIndex, perspective: Perspective | None, row: TrajectoryRecord, group: GroupRecord | None
) -> Explanation:
    head = f"trajectory {row.trajectory_id} of group {row.group_id}: {row.status}" + _because(row.ready, row.reasons)
    full = [FULL_TRAJECTORY.format(row.calls_left_out)] if row.calls_left_out else []
    batches = _batches(runs, row.group_id, row.trajectory_id, None)
    state, lines = _inherited(rows, runs, perspective, group, batches)
    if not row.ready and state not in ("trained", "planned"):
        state = "not_ready"
    if state == "next" and perspective is not None and group is not None:
        state, lines = _within_batch(rows, perspective, group, row, lines)
    if state in ("trained", "planned") and not batches:
        state, lines = "left_out", _left_out(runs, row.group_id, row.trajectory_id)
    ids = (row.group_id, row.trajectory_id)
    lines_shown = (head, *full, *_calls(row), *lines)
    return Explanation(kind="trajectory", ids=ids, state=state, lines=lines_shown, trained=batches)


def _calls(row: TrajectoryRecord) -> Iterator[str]:
    """How many calls there are and how many the completion counted, where this keeps it from being ready."""
    captured = len(counted_calls(row.calls)) + row.calls_left_out  # which may be choices of those
    most = "at most " if row.calls_left_out else ""
    counted = f"  calls: {most}{captured} captured, {row.calls_expected} counted by its completion"
    if "calls_missing" in row.reasons:
        yield f"{counted}: the others have not come"
    if "calls_uncounted" in row.reasons:
        yield f"{counted}: the agent did not go on with some (a retry without its key?), or counted too few and completes again"


def _of_step(
    rows: PoolRows, runs: RunIndex, perspective: Perspective | None, step: StepRecord, group: GroupRecord | None
) -> Explanation:
    ids = (step.group_id, step.trajectory_id, step.call_id)
    head = f"call {step.call_id} of {step.trajectory_id} in group {step.group_id}: "
    head += "trainable" if step.trainable else f"not trainable ({', '.join(step.reasons)})"
    batches = _batches(runs, step.group_id, step.trajectory_id, step.call_id)
    state, lines = _inherited(rows, runs, perspective, group, batches)
    if batches:
        return Explanation(kind="step", ids=ids, state=state, lines=(head, *lines), trained=batches)
    if state in ("trained", "planned"):
        lines = _left_out(runs, step.group_id, step.trajectory_id, step.call_id)
        return Explanation(kind="step", ids=ids, state="left_out", lines=(head, *lines))
    if not step.trainable:
        return Explanation(kind="step", ids=ids, state="not_ready", lines=(head, *lines))
    mask = _masked(rows, perspective, step, group) if state in ("next", "left_out", "not_ready") else None
    if mask is not None:
        lines = [*lines, mask]
        state = "left_out" if state == "next" else state
    elif state == "next" and perspective is not None and group is not None:
        row = rows.trajectory(step.group_id, step.trajectory_id)
        state, lines = (state, lines) if row is None else _within_batch(rows, perspective, group, row, lines)
    return Explanation(kind="step", ids=ids, state=state, lines=(head, *lines))


def _masked(rows: PoolRows, perspective: Perspective | None, step: StepRecord, group: GroupRecord | None) -> str | None:
    row = rows.trajectory(step.group_id, step.trajectory_id)
    if perspective is None or group is None or row is None:
        return None
    mask = mask_of(step, member_of(group, row, (), perspective.spec), perspective.spec)
    if mask is None:
        return None
    waits = perspective.spec.quality_missing == "wait" and mask.word.startswith(UNANNOTATED)
    return f"  {'its group waits' if waits else 'masked'}: {mask.sentence} ({mask.word})"


State = Literal["trained", "planned", "skipped", "next", "left_out", "ready", "not_ready"]


def _inherited(
    rows: PoolRows,
    runs: RunIndex,
    perspective: Perspective | None,
    group: GroupRecord | None,
    batches: tuple[tuple[str, int, int | None], ...],
) -> tuple[State, list[str]]:
    """What its group's fate means for a part of it."""
    if batches:
        state: State = "trained" if any(version is not None for *_, version in batches) else "planned"
        return state, [_trained_line(*batch) for batch in batches]
    if group is None:
        return "not_ready", ["  the pool has no row of its group yet"]
    return _fate(rows, runs, perspective, group)


def _fate(
    rows: PoolRows, runs: RunIndex, perspective: Perspective | None, group: GroupRecord
) -> tuple[State, list[str]]:
    """What runs did with the group, or what the run in question would do now."""
    batches = runs.planned(group.group_id)
    lines = [_trained_line(batch.run_id, batch.sequence, runs.version_made(batch)) for batch in batches]
    skipped = runs.skipped(group.group_id)
    lines += [f"  run {run_id} skipped it for good: {reason}" for run_id, reason in sorted(skipped.items())]
    if batches:
        return "trained" if any(runs.version_made(batch) is not None for batch in batches) else "planned", lines
    if skipped:
        return "skipped", lines
    if perspective is None:
        return ("ready" if group.ready else "not_ready"), lines
    return _eligibility(rows, perspective, group, lines)


def _eligibility(
    rows: PoolRows, perspective: Perspective, group: GroupRecord, lines: list[str]
) -> tuple[State, list[str]]:
    who = f"run {perspective.run_id} at version {perspective.version}"
    if rows.group(group.group_id) is None:
        return "not_ready", [*lines, "  its rows are of different moments; the streams are still writing"]
    outcome = eligible(rows, group, perspective.spec, perspective.version, perspective.run_id)
    if not isinstance(outcome, Refusal):
        return "next", [*lines, f"  {who} would train it: it waits for its turn or for a whole batch"]
    word = {"wait": "waits", "never": "will never train it", "foreign": "does not train it"}[outcome.kind]
    return ("left_out" if group.ready else "not_ready"), [*lines, f"  {who} {word}: {outcome.reason}"]


def _within_batch(
    rows: PoolRows, perspective: Perspective, group: GroupRecord, row: TrajectoryRecord, lines: list[str]
) -> tuple[State, list[str]]:
    """Its group would be trained; it may count in the baseline only."""
    outcome = eligible(rows, group, perspective.spec, perspective.version, perspective.run_id)
    reasons = baseline_only(outcome, perspective.spec) if isinstance(outcome, PooledGroup) else {}
    if row.trajectory_id not in reasons:
        return "next", lines
    return "left_out", [*lines, f"  it counts in the baseline and is not trained itself: {reasons[row.trajectory_id]}"]


def _left_out(runs: RunIndex, group_id: str, trajectory_id: str, call_id: str | None = None) -> list[str]:
    """Of what no batch trains: what each plan of its group says."""
    return [
        f"  not in batch {batch.sequence} of run {batch.run_id}: {why_left_out(batch, trajectory_id, call_id)}"
        for batch in runs.planned(group_id)
    ]


def _batches(
    runs: RunIndex, group_id: str, trajectory_id: str | None, call_id: str | None
) -> tuple[tuple[str, int, int | None], ...]:
    return tuple(
        (batch.run_id, batch.sequence, runs.version_made(batch))
        for batch in runs.planned(group_id)
        if any(_holds(batch, trajectory_id, call_id))
    )


def _holds(batch: Planned, trajectory_id: str | None, call_id: str | None) -> Iterator[bool]:
    for trajectory, calls in batch.trained.items():
        if trajectory_id in (None, trajectory):
            yield bool(calls) if call_id is None else call_id in calls


def _trained_line(run_id: str, sequence: int, version: int | None) -> str:
    outcome = "not trained yet" if version is None else f"made version {version}"
    return f"  in batch {sequence} of run {run_id}: {outcome}"


def _because(ready: bool, reasons: tuple[str, ...]) -> str:
    return ", ready" if ready else f", not ready ({', '.join(reasons)})"
