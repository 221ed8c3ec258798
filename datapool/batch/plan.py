"""Which groups make up a batch, and the plan that freezes them.

Invariant: both functions are functions of the pool's rows, the spec and the run's own history. No clock is read; equal
inputs give equal plans. Every group that is not chosen has a reason that a person can read, of one of two kinds:
`left_out` may change (more members, a reward) or concerns another run; `skipped` never will for this run, so the run
says so once in a BatchSkipped and the group's admission capacity returns.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from datapool.batch.advantages import Advantage, Return
from datapool.batch.selection import (
    CHANGING,
    Pool,
    PooledGroup,
    PooledTrajectory,
    Refusal,
    Verdict,
    crowding,
    is_trained,
    trained_members,
    weigh,
    with_members,
)
from datapool.batch.spec import PRIORITY_TAG, BatchSpec
from datapool.fold import bounds
from schemas.events import BatchAssembled, Envelope, GroupRecord, PlannedStep, PlannedTrajectory

NUMBER = re.compile(r"-?\d+(\.\d+)?")
UNJUDGED = Return(0.0)


@dataclass(frozen=True, slots=True)
class Selection:
    """`complete`: the chosen groups are a whole batch; otherwise wait and select again."""

    chosen: tuple[PooledGroup, ...]
    left_out: Mapping[str, str]
    skipped: Mapping[str, str]
    complete: bool
    foreign: frozenset[str] = frozenset()
    """Of those left out the ones that concern another run or another spec."""


NEXT_BATCH = Refusal("wait", "next_batch")


def select(pool: Pool, spec: BatchSpec, version: int, run_id: str, already_planned: Collection[str]) -> Selection:
    """The groups that come first in the spec's order and make a batch for `version` of this run."""
    return Selector(pool, spec, run_id).select(version, already_planned)


class Selector:
    """Selects for one run again and again.

    Invariant: a selection equals one that remembers nothing. A group is judged once for each row of it, whatever the
    version is and whether the batch is full; where no row has changed, the selection before is the answer.
    """

    def __init__(self, pool: Pool, spec: BatchSpec, run_id: str) -> None:
        self._pool = pool
        self._spec = spec
        self._run_id = run_id
        self._verdicts: dict[str, tuple[GroupRecord, Verdict]] = {}
        self._chosen: dict[str, PooledGroup] = {}
        self._last: tuple[list[GroupRecord], int, Selection] | None = None

    def select(self, version: int, already_planned: Collection[str]) -> Selection:
        """The groups that come first in the spec's order and make a batch for `version`."""
        records = [record for record in self._pool.groups() if record.group_id not in already_planned]
        if self._last is not None and self._last[:2] == (records, version):
            return self._last[2]
        selection = self._select(ordered(records, self._spec), version)
        changing = {group_id for group_id, reason in selection.left_out.items() if reason == CHANGING.reason}
        steady = {record.group_id for record in records} - changing
        self._verdicts = {group_id: self._verdicts[group_id] for group_id in steady}
        self._chosen = {group.record.group_id: group for group in selection.chosen}
        self._last = None if changing else (records, version, selection)
        return selection

    def _select(self, records: Sequence[GroupRecord], version: int) -> Selection:
        picked: list[tuple[GroupRecord, PooledGroup | None]] = []
        refusals: dict[str, Refusal] = {}
        tokens, size, full = 0, 0, False
        for record in records:
            verdict, group = self._weigh(record)
            refusal = verdict.at(version, self._spec)
            if refusal is None:
                tokens, size = tokens + verdict.response_tokens, size + verdict.plan_bytes
                too_large = size > bounds.PLAN_BYTES_MAX or _too_many(tokens, self._spec)
                full = full or len(picked) == self._spec.groups_per_batch or too_large
                refusal = NEXT_BATCH if full else None
            if refusal is None:
                picked.append((record, group))
            else:
                refusals[record.group_id] = refusal
        full = full or len(picked) == self._spec.groups_per_batch
        refused = ((record, refusals[record.group_id]) for record in records if record.group_id in refusals)
        for record in list(crowding(refused, self._spec, self._run_id)):
            refusals[record.group_id] = replace(refusals[record.group_id], kind="never")
        return self._read(picked, refusals, full=full)

    def _weigh(self, record: GroupRecord) -> tuple[Verdict, PooledGroup | None]:
        """The verdict on a row, and the group where its members are at hand."""
        known = self._verdicts.get(record.group_id)
        if known is not None and (known[0] is record or known[0] == record):
            return known[1], self._chosen.get(record.group_id)
        verdict, group = weigh(self._pool, record, self._spec, self._run_id)
        self._verdicts[record.group_id] = record, verdict
        return verdict, group

    def _read(
        self, picked: Iterable[tuple[GroupRecord, PooledGroup | None]], refusals: dict[str, Refusal], *, full: bool
    ) -> Selection:
        """The selection, with the members of the picked groups that were judged earlier."""
        chosen: list[PooledGroup] = []
        for record, at_hand in picked:
            group = at_hand or with_members(self._pool, record, self._spec)
            if group is None:
                refusals[record.group_id], full = CHANGING, False
            else:
                chosen.append(group)
        said = refusals.items()
        return Selection(
            tuple(chosen),
            left_out={group_id: refusal.reason for group_id, refusal in said if refusal.kind != "never"},
            skipped={group_id: refusal.reason for group_id, refusal in said if refusal.kind == "never"},
            complete=full,
            foreign=frozenset(group_id for group_id, refusal in said if refusal.kind == "foreign"),
        )


def _too_many(tokens: int, spec: BatchSpec) -> bool:
    return spec.response_tokens_max is not None and tokens > spec.response_tokens_max


def ordered(groups: Iterable[GroupRecord], spec: BatchSpec) -> list[GroupRecord]:
    """Groups in the spec's order. Old = low (last_progress_us, group_id): the fact that completed the group, on its
    producer's clock."""
    oldest = sorted(groups, key=lambda row: (row.last_progress_us, row.group_id))
    if spec.order == "newest":
        return oldest[::-1]
    return oldest if spec.order == "fifo" else sorted(oldest, key=lambda row: -priority(row))


def priority(record: GroupRecord) -> float:
    """The highest number that a tag `priority:<number>` names, else 0."""
    named = [tag.removeprefix(PRIORITY_TAG) for tag in record.tags if tag.startswith(PRIORITY_TAG)]
    return max((float(number) for number in named if NUMBER.fullmatch(number)), default=0.0)


def assemble(
    chosen: Iterable[PooledGroup],
    spec: BatchSpec,
    *,
    run_id: str,
    sequence: int,
    version: int,
    seed: int,
    envelope: Envelope,
) -> BatchAssembled:
    """The plan: rewards, advantages and masks as they are now, tokens by reference."""
    groups = list(chosen)
    earned = [[member.judged or UNJUDGED for member in group.members] for group in groups]
    advantages = spec.estimator.function(earned)
    return BatchAssembled(
        envelope=envelope,
        run_id=run_id,
        sequence=sequence,
        version=version,
        spec=spec.to_json(),
        trajectories=tuple(
            trajectory
            for group, of_group in zip(groups, advantages, strict=True)
            for trajectory in _frozen(group, spec, of_group)
        ),
        seed=seed,
    )


def _frozen(group: PooledGroup, spec: BatchSpec, advantages: Iterable[Advantage]) -> list[PlannedTrajectory]:
    """Members that are not trained keep their reward, for who reads how well the policy did, and have no steps."""
    trained = {member.record.trajectory_id for member in trained_members(group, spec)}
    return [
        PlannedTrajectory(
            group_id=group.record.group_id,
            trajectory_id=member.record.trajectory_id,
            reward=(member.judged or UNJUDGED).total,
            advantage=advantage.whole,
            min_version=member.record.min_version,
            max_version=member.record.max_version,
            steps=_steps(member, spec, advantage) if member.record.trajectory_id in trained else (),
        )
        for member, advantage in zip(group.members, advantages, strict=True)
    ]


def _steps(member: PooledTrajectory, spec: BatchSpec, advantage: Advantage) -> tuple[PlannedStep, ...]:
    own = advantage.steps or (None,) * len(member.steps)
    return tuple(
        PlannedStep(
            call_id=step.call_id,
            position=step.position,
            digest=step.digest,
            trained=is_trained(step, member, spec),
            advantage=value,
        )
        for step, value in zip(member.steps, own, strict=True)
        if step.position is not None
    )


def groups_of(plan: BatchAssembled) -> tuple[str, ...]:
    """group_ids of a plan, each once, in order."""
    return tuple(dict.fromkeys(trajectory.group_id for trajectory in plan.trajectories))
