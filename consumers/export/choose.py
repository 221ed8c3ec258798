"""Which trajectories a batch spec lets out, and why not the others. Pure.

A dataset belongs to no run. So each group is judged as the run that sampled it would judge it at the moment of its
youngest token: `staleness_max` bounds the versions within a group, and what is about one batch only (`groups_per_batch`,
`order`) does not matter. Without a spec everything that was captured is let out.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from datapool.batch_spec import BatchSpec
from datapool.project import call_order, project
from datapool.selection import PooledTrajectory, Refusal, is_trained, judge, trained_members
from datapool.state import GroupState
from schemas.events import GroupRecord, StepRecord, TrajectoryRecord


@dataclass(frozen=True, slots=True)
class Chosen:
    """A trajectory that goes out, with its captured steps in order and those of them that are trained."""

    group: GroupRecord
    record: TrajectoryRecord
    steps: tuple[StepRecord, ...]
    trained: frozenset[str]
    reward: float | None = None
    """The return under the weights of the spec."""


class FoldedGroup:
    """The records of one group, as selection reads a pool."""

    def __init__(self, state: GroupState) -> None:
        self._state = state
        records = list(project(state).values())
        self.record = next(record for record in records if isinstance(record, GroupRecord))
        self._trajectories = {r.trajectory_id: r for r in records if isinstance(r, TrajectoryRecord)}
        self._steps = {(r.trajectory_id, r.call_id): r for r in records if isinstance(r, StepRecord)}

    def groups(self) -> list[GroupRecord]:
        return [self.record]

    def trajectory(self, group_id: str, trajectory_id: str) -> TrajectoryRecord | None:
        return self._trajectories.get(trajectory_id) if group_id == self.record.group_id else None

    def steps(self, group_id: str, trajectory_id: str) -> list[StepRecord]:
        """Captured steps in the order of the calls."""
        if self.trajectory(group_id, trajectory_id) is None:
            return []
        # Not of the record: it may have no room for all of them.
        return [self._steps[trajectory_id, call_id] for call_id in call_order(self._state.trajectories[trajectory_id])]

    def trajectories(self) -> list[TrajectoryRecord]:
        """In order of id."""
        return [self._trajectories[name] for name in sorted(self._trajectories)]


def choose(state: GroupState, spec: BatchSpec | None) -> list[Chosen] | str:
    """What goes out of a group, in order of trajectory_id, or why nothing does."""
    pool = FoldedGroup(state)
    if spec is None:
        captured = [record for record in pool.trajectories() if record.calls]
        return list(_everything(pool, captured)) or "no_calls"
    policies = {record.policy_run_id for record in pool.trajectories() if record.ready and record.policy_run_id}
    run_id = policies.pop() if len(policies) == 1 else pool.record.run_id or ""
    judged = judge(pool, replace(pool.record, run_id=None), spec, pool.record.max_version or 0, run_id)
    if isinstance(judged, Refusal):
        return judged.reason
    trained = trained_members(judged, spec)
    return [_member(pool.record, member, spec, is_trained=member in trained) for member in judged.members]


def _member(group: GroupRecord, member: PooledTrajectory, spec: BatchSpec, *, is_trained: bool) -> Chosen:
    """One that the spec leaves out (`best_of`, `return_min`) goes out as context of the baseline, with nothing trained."""
    trained = _trained(member, spec) if is_trained else frozenset[str]()
    reward = member.judged.total if member.judged is not None else None
    return Chosen(group, member.record, member.steps, trained, reward)


def _everything(pool: FoldedGroup, records: Iterable[TrajectoryRecord]) -> Iterator[Chosen]:
    for record in records:
        steps = tuple(pool.steps(record.group_id, record.trajectory_id))
        yield Chosen(pool.record, record, steps, frozenset(step.call_id for step in steps if step.trainable))


def _trained(member: PooledTrajectory, spec: BatchSpec) -> frozenset[str]:
    return frozenset(step.call_id for step in member.steps if is_trained(step, member, spec))
