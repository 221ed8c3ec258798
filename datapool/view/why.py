"""The explanation why something is not ready, was left out, or when it was trained: one answer per group, trajectory or
call of an id.

Invariant: an answer is made of the pool's rows, the runs' events and a spec, all as they are now; it guesses nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from claw_r1.datapool.batch.candidates import PooledGroup, counts, member_of
from claw_r1.datapool.batch.eligibility import Refusal, eligible
from claw_r1.datapool.batch.masks import UNANNOTATED, is_imitable, mask_at
from claw_r1.datapool.batch.members import baseline_only
from claw_r1.datapool.batch.rewards import SAID_NOTHING, counting, emptied, merged_value, slot_text, votes
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.fold.merge import winners
from claw_r1.datapool.fold.readiness import counted_calls, is_evicted
from claw_r1.datapool.runs import RunIndex
from claw_r1.datapool.view.left_out import why_left_out
from claw_r1.datapool.view.rows import PoolRows, as_step
from claw_r1.schemas.events import GroupRecord, RewardSlot, StepRecord, TrajectoryRecord

FULL_GROUP = "  {} members more than its record holds: give each task a group id of its own"
NO_MEMBER = "  its group is next without it: the group was closed without it, or it is not ready"
FULL_TRAJECTORY = "  {} calls more than its record holds: begin a trajectory for each task"

Standing = Literal["trained", "planned", "skipped", "next", "left_out", "ready", "not_ready"]
Trained = tuple[tuple[str, int, int | None], ...]
"""(run, batch, version or None) each time that something was trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Perspective:
    """For whom: a run at a version with a spec."""

    run_id: str
    version: int
    spec: BatchSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """`state` in one word, `lines` for a person."""

    kind: Literal["group", "trajectory", "step"]
    ids: tuple[str, ...]
    state: Standing
    lines: tuple[str, ...]
    trained: Trained = ()


def why(
    rows: PoolRows,
    runs: RunIndex,
    perspective: Perspective | None,
    name: str,
    decoded: Mapping[tuple[str, str], Sequence[StepRecord]] | None = None,
) -> list[Explanation]:
    """Answers about every group, trajectory and call of that id; none when the pool knows no such id.

    perspective None: nobody trains; only readiness is explained. A trajectory that is its own group is one answer, as a
    trajectory. decoded: captured steps of these rows by (group_id, trajectory_id), where they were read already: of a
    long trajectory they take a second.
    """
    return list(_Answers(rows, runs, perspective, decoded or {}).about(name))


@dataclass(frozen=True, slots=True)
class _Answers:
    """All answers are made of the same rows and runs, for the same perspective."""

    rows: PoolRows
    runs: RunIndex
    perspective: Perspective | None
    decoded: Mapping[tuple[str, str], Sequence[StepRecord]]

    def about(self, name: str) -> Iterator[Explanation]:
        group, trajectories = self.rows.group_row(name), self.rows.trajectories_named(name)
        if group is not None and not _is_one_trajectory(group):
            yield self._of_group(group)
        yield from map(self._of_trajectory, trajectories)
        for ids, value in self.rows.store.named([name]):
            if ids[2] == name:
                yield self._of_step(as_step(value))

    def _of_group(self, group: GroupRecord) -> Explanation:
        state, lines = self._fate(group)
        ready = sum(member.ready for member in group.members)
        size = f" of {group.expected_size}" if group.expected_size is not None else ""
        head = f"group {group.group_id}: {ready}{size} members ready" + _because(group.ready, group.reasons)
        if is_evicted(group):
            head = f"group {group.group_id}: evicted ({group.evicted_reason}); the facts of it stay in the log"
        full = [FULL_GROUP.format(group.members_left_out)] if group.members_left_out else []
        not_ready = (
            f"  member {member.trajectory_id}: {member.status}, not ready"
            + self._member_because(group, member.trajectory_id)
            for member in group.members
            if not member.ready
        )
        return Explanation(
            kind="group",
            ids=(group.group_id,),
            state=state,
            lines=(head, *full, *not_ready, *lines),
            trained=self._trained(group.group_id),
        )

    def _member_because(self, group: GroupRecord, trajectory_id: str) -> str:
        row = self.rows.trajectory(group.group_id, trajectory_id)
        return f" ({', '.join(row.reasons)})" if row is not None and row.reasons else ""

    def _of_trajectory(self, row: TrajectoryRecord) -> Explanation:
        ids, group = (row.group_id, row.trajectory_id), self.rows.group_row(row.group_id)
        head = f"trajectory {row.trajectory_id} of group {row.group_id}: {row.status}" + _because(
            row.ready, row.reasons
        )
        full = [FULL_TRAJECTORY.format(row.calls_left_out)] if row.calls_left_out else []
        trained = self._trained(*ids)
        state, lines = self._inherited(group, row, trained)
        counted = row.ready if self.perspective is None else counts(row, self.rows.steps(*ids), self.perspective.spec)
        if not counted and state not in ("trained", "planned"):
            state = "not_ready"
        if state == "next":
            state, lines = self._within_batch(group, row, lines)
        if state in ("trained", "planned") and not trained:
            state, lines = "left_out", self._left_out(*ids)
        lines_shown = (head, *full, *_calls(row), *self._rewards(row, group), *lines)
        return Explanation(kind="trajectory", ids=ids, state=state, lines=lines_shown, trained=trained)

    def _of_step(self, step: StepRecord) -> Explanation:
        ids, group = (step.group_id, step.trajectory_id, step.call_id), self.rows.group_row(step.group_id)
        row = self.rows.trajectory(step.group_id, step.trajectory_id)
        head = f"call {step.call_id} of {step.trajectory_id} in group {step.group_id}: "
        head += "trainable" if step.trainable else f"not trainable ({', '.join(step.reasons)})"
        trained = self._trained(*ids)
        state, lines = self._inherited(group, row, trained)
        if not trained and state in ("trained", "planned"):
            state, lines = "left_out", self._left_out(*ids)
        elif not trained and not step.trainable and not self._imitates(step):
            state = "not_ready"
        elif state in ("next", "left_out", "not_ready") and (mask := self._mask(step, row, group)):
            state, lines = "left_out" if state == "next" else state, [*lines, mask]
        elif state == "next" and row is not None:
            state, lines = self._within_batch(group, row, lines)
        lines_shown = (head, *_empty(step.rewards), *self._merged(winners(step.rewards, ())), *lines)
        return Explanation(kind="step", ids=ids, state=state, lines=lines_shown, trained=trained)

    def _rewards(self, row: TrajectoryRecord, group: GroupRecord | None) -> Iterator[str]:
        """Lists the rewards that the trajectory lacks: slots without a value, its own and its calls', and those that
        the spec requires."""
        ids = row.group_id, row.trajectory_id
        steps = self.decoded[ids] if ids in self.decoded else self.rows.steps(*ids)
        own = [slot for slot in row.rewards if slot.step_index is None]
        yield from _empty(own)
        yield from (f"{line} (call {step.call_id})" for step in steps for line in _empty(step.rewards))
        yield from self._merged(own)
        if self.perspective is None or group is None:
            return
        for slot, failed in member_of(group, row, steps, self.perspective.spec).lacks.items():
            gave_up = "nobody has given it yet" if failed is None else f"its scorer gave up ({failed})"
            why_not = f"its scorer has {failed}" if failed == SAID_NOTHING else gave_up
            yield f"  it lacks a reward {slot}, which the spec requires: {why_not}"

    def _merged(self, slots: Sequence[RewardSlot]) -> Iterator[str]:
        """Explains the merged rewards of one subject: people's values, and the spec's result."""
        spec = self.perspective.spec if self.perspective is not None else BatchSpec()
        for name, several in votes(counting(slots, spec)).items():
            words = ", ".join(map(slot_text, several))
            yield f"  {len(several)} people said {name}: {words}; {spec.reward_merge} {merged_value(several, spec):g}"

    def _imitates(self, step: StepRecord) -> bool:
        return self.perspective is not None and self.perspective.spec.policy == "any" and is_imitable(step)

    def _mask(self, step: StepRecord, row: TrajectoryRecord | None, group: GroupRecord | None) -> str | None:
        if self.perspective is None or group is None or row is None:
            return None
        spec = self.perspective.spec
        mask = mask_at(step, member_of(group, row, (), spec), spec, self.perspective.version)
        if mask is None:
            return None
        waits = spec.quality_missing == "wait" and mask.word.startswith(UNANNOTATED)
        return f"  {'its group waits' if waits else 'masked'}: {mask.sentence} ({mask.word})"

    def _inherited(
        self, group: GroupRecord | None, row: TrajectoryRecord | None, trained: Trained
    ) -> tuple[Standing, list[str]]:
        """Returns the state that a part of a group has because of the group's. row: the trajectory in question, or the call's."""
        if trained:
            state: Standing = "trained" if any(version is not None for *_, version in trained) else "planned"
            return state, [_trained_line(*batch) for batch in trained]
        if group is None:
            return "not_ready", ["  the pool has no row of its group yet"]
        state, lines = self._fate(group)
        if state == "next" and row is not None and not self._is_member(group, row):
            return "left_out", [NO_MEMBER]
        return state, lines

    def _is_member(self, group: GroupRecord, row: TrajectoryRecord) -> bool:
        """Returns whether a group that is next has the trajectory, also where the spec drops it."""
        assert self.perspective is not None  # without it nothing is next
        spec = self.perspective.spec
        outcome = eligible(self.rows, group, spec, self.perspective.version, self.perspective.run_id)
        return isinstance(outcome, PooledGroup) and (
            row.trajectory_id in outcome.dropped
            or any(member.record.trajectory_id == row.trajectory_id for member in outcome.members)
        )

    def _fate(self, group: GroupRecord) -> tuple[Standing, list[str]]:
        """Returns the work of runs on the group, or the decision of the run in question about it now."""
        batches = [
            (batch.run_id, batch.sequence, self.runs.version_made(batch)) for batch in self.runs.planned(group.group_id)
        ]
        lines = [_trained_line(*batch) for batch in batches]
        skipped = self.runs.skipped(group.group_id)
        lines += [f"  run {run_id} skipped it for good: {reason}" for run_id, reason in sorted(skipped.items())]
        if batches:
            return "trained" if any(version is not None for *_, version in batches) else "planned", lines
        if skipped:
            return "skipped", lines
        if self.perspective is None:
            return ("ready" if group.ready else "not_ready"), lines
        return self._eligibility(self.perspective, group)

    def _eligibility(self, perspective: Perspective, group: GroupRecord) -> tuple[Standing, list[str]]:
        who = f"run {perspective.run_id} at version {perspective.version}"
        if self.rows.group(group.group_id) is None:
            return "not_ready", ["  its rows are of different moments; the streams are still writing"]
        outcome = eligible(self.rows, group, perspective.spec, perspective.version, perspective.run_id)
        if not isinstance(outcome, Refusal):
            without = (f"  without {name}: {reason}" for name, reason in outcome.dropped.items())
            return "next", [f"  {who} would train it: it waits for its turn or for a whole batch", *without]
        word = {"wait": "waits", "never": "will never train it", "foreign": "does not train it"}[outcome.kind]
        return ("left_out" if group.ready else "not_ready"), [f"  {who} {word}: {outcome.reason}"]

    def _within_batch(
        self, group: GroupRecord | None, row: TrajectoryRecord, lines: list[str]
    ) -> tuple[Standing, list[str]]:
        """Its group would be trained; it may count in the baseline only."""
        assert group is not None  # without them nothing
        assert self.perspective is not None  # is next
        spec = self.perspective.spec
        outcome = eligible(self.rows, group, spec, self.perspective.version, self.perspective.run_id)
        if not isinstance(outcome, PooledGroup):
            return "next", lines
        if row.trajectory_id in outcome.dropped:
            cut_off = "its last reply was cut off by its length: it is not counted (truncated: drop)"
            reason = outcome.dropped[row.trajectory_id]
            return "left_out", [*lines, "  " + (cut_off if reason == "truncated" else f"it is not counted ({reason})")]
        reasons = baseline_only(outcome, spec)
        if row.trajectory_id not in reasons:
            return "next", lines
        return "left_out", [
            *lines,
            f"  it counts in the baseline and is not trained itself: {reasons[row.trajectory_id]}",
        ]

    def _left_out(self, group_id: str, trajectory_id: str, call_id: str | None = None) -> list[str]:
        """Explains why a part is in no batch: the reasons in each plan of its group."""
        return [
            f"  not in batch {batch.sequence} of run {batch.run_id}: {why_left_out(batch, trajectory_id, call_id)}"
            for batch in self.runs.planned(group_id)
        ]

    def _trained(self, group_id: str, trajectory_id: str | None = None, call_id: str | None = None) -> Trained:
        return tuple(
            (batch.run_id, batch.sequence, self.runs.version_made(batch))
            for batch in self.runs.planned(group_id)
            if any(
                bool(calls) if call_id is None else call_id in calls
                for trajectory, calls in batch.trained.items()
                if trajectory_id in (None, trajectory)
            )
        )


def _empty(slots: Iterable[RewardSlot]) -> Iterator[str]:
    return (f"  reward {slot_text(slot)}" for slot in emptied(slots))


def _calls(row: TrajectoryRecord) -> Iterator[str]:
    """Returns how many calls there are and how many the completion counted, where this keeps it from being ready."""
    captured = len(counted_calls(row.calls)) + row.calls_left_out  # which may be choices of those
    most = "at most " if row.calls_left_out else ""
    counted = f"  calls: {most}{captured} captured, {row.calls_expected} counted by its completion"
    if "calls_missing" in row.reasons:
        yield f"{counted}: the others have not come"
    if "calls_uncounted" in row.reasons:
        yield f"{counted}: the agent did not go on with some (a retry without its key?), or counted too few and completes again"


def _trained_line(run_id: str, sequence: int, version: int | None) -> str:
    outcome = "not trained yet" if version is None else f"made version {version}"
    return f"  in batch {sequence} of run {run_id}: {outcome}"


def _is_one_trajectory(group: GroupRecord) -> bool:
    """Returns whether all that can be said of the group is said of its only member."""
    return [member.trajectory_id for member in group.members] == [group.group_id] and not group.members_left_out


def _because(ready: bool, reasons: tuple[str, ...]) -> str:
    return ", ready" if ready else f", not ready ({', '.join(reasons)})"
