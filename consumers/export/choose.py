"""The choice of the trajectories that a batch spec exports, and the reasons against the others. Pure.

A dataset belongs to no run. So each group is judged as the run that sampled it would judge it at the moment of its
youngest token: `staleness_max` bounds the versions within a group, and what is about one batch only (`groups_per_batch`,
`order`) does not matter. Without a spec everything that was captured is let out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from claw_r1.datapool.batch.advantages import Advantage
from claw_r1.datapool.batch.candidates import OVER, Members, PooledGroup, PooledTrajectory, counts
from claw_r1.datapool.batch.eligibility import Refusal, eligible
from claw_r1.datapool.batch.masks import is_trained, is_young
from claw_r1.datapool.batch.members import trained_members
from claw_r1.datapool.batch.plan import NO_REWARD
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.fold.project import project
from claw_r1.datapool.fold.readiness import call_order
from claw_r1.datapool.fold.state import GroupState
from claw_r1.schemas.events import GroupRecord, StepRecord, TrajectoryRecord


@dataclass(frozen=True, slots=True)
class Chosen:
    """A trajectory that goes out, with its captured steps in order and those of them that are trained."""

    group: GroupRecord
    record: TrajectoryRecord
    steps: tuple[StepRecord, ...]
    trained: frozenset[str]
    reward: float | None = None
    """The return under the weights of the spec; None: there is no spec, or no reward that it counts."""
    by_spec: bool = False
    oldest_version: int | None = None
    """Tokens of older versions are context only; None: all are trained."""
    advantages: Mapping[str, float] = field(default_factory=dict)
    """By call_id, of the trained responses: as a plan under the spec would freeze them. Empty
    where nothing says which."""

    @property
    def earned(self) -> float | None:
        """The return: the spec's where one chose it, whatever else was given; without one the pool's own."""
        return self.reward if self.by_spec else self.record.return_total


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

    def members(self, record: GroupRecord) -> Members:
        """Members that are over, with their captured steps; records of one state share one moment."""
        over = [self._trajectories[member.trajectory_id] for member in record.members if member.status in OVER]
        return [(row, self.steps(row)) for row in over]

    def steps(self, record: TrajectoryRecord) -> list[StepRecord]:
        """Captured steps in the order of the calls."""
        # Not of the record: it may have no room for all of them.
        calls = call_order(self._state.trajectories[record.trajectory_id])
        return [self._steps[record.trajectory_id, call_id] for call_id in calls]

    def trajectories(self) -> list[TrajectoryRecord]:
        """In order of id."""
        return [self._trajectories[name] for name in sorted(self._trajectories)]


def choose(state: GroupState, spec: BatchSpec | None) -> list[Chosen] | str:
    """Chooses the trajectories of a group that are exported, in order of trajectory_id, or returns why none is."""
    pool = FoldedGroup(state)
    if spec is None:
        captured = [record for record in pool.trajectories() if record.calls]
        return list(_everything(pool, captured)) or "no_calls"
    counted = [record for record, steps in pool.members(pool.record) if counts(record, steps, spec)]
    policies = {record.policy_run_id for record in counted if record.policy_run_id}
    run_id = policies.pop() if len(policies) == 1 else pool.record.run_id or ""
    version = max((record.max_version or 0 for record in counted), default=0)
    eligible_group = eligible(pool, replace(pool.record, run_id=None), spec, version, run_id)
    if isinstance(eligible_group, Refusal):
        return eligible_group.reason
    trained = trained_members(eligible_group, spec)
    return [
        _member(pool.record, member, spec, advantage, spec.oldest_version(version), is_trained=member in trained)
        for member, advantage in zip(eligible_group.members, _advantages(eligible_group, spec), strict=True)
    ]


def _advantages(group: PooledGroup, spec: BatchSpec) -> Sequence[Advantage | None]:
    """A dataset has no batches and no critic, so it has no advantages of estimators that need one."""
    if spec.estimator.over_batch or spec.estimator.critic:
        return [None] * len(group.members)
    (of_group,) = spec.estimator.function([[member.earned or NO_REWARD for member in group.members]])
    return of_group


def _member(
    group: GroupRecord,
    member: PooledTrajectory,
    spec: BatchSpec,
    advantage: Advantage | None,
    oldest: int | None,
    *,
    is_trained: bool,
) -> Chosen:
    """Makes the row of a member; one that the spec leaves out (`best_of`, `return_min`) goes out as context of the
    baseline, with nothing trained."""
    trained = _trained(member, spec, oldest) if is_trained else frozenset[str]()
    reward = member.earned.total if member.earned is not None else None
    advantages = _of_calls(member, trained, advantage)
    common = (group, member.record, member.steps, trained, reward)
    return Chosen(*common, by_spec=True, oldest_version=oldest, advantages=advantages)


def _of_calls(member: PooledTrajectory, trained: frozenset[str], advantage: Advantage | None) -> dict[str, float]:
    """Each trained call's own, or its trajectory's where calls do not differ."""
    if advantage is None:
        return {}
    own = advantage.steps or (advantage.whole,) * len(member.steps)
    return {step.call_id: value for step, value in zip(member.steps, own, strict=True) if step.call_id in trained}


def _everything(pool: FoldedGroup, records: Iterable[TrajectoryRecord]) -> Iterator[Chosen]:
    for record in records:
        steps = tuple(pool.steps(record))
        yield Chosen(pool.record, record, steps, frozenset(step.call_id for step in steps if step.trainable))


def _trained(member: PooledTrajectory, spec: BatchSpec, oldest: int | None) -> frozenset[str]:
    return frozenset(step.call_id for step in member.steps if is_trained(step, member, spec) and is_young(step, oldest))
