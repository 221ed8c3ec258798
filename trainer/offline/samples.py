"""A pool whose samples always count as this run's, and never as stale.

The importance ratio stays right, because its denominator is the log-probability that the engine gave; the metrics
`ess` and `kl_k3` show how far the policy has moved.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from claw_r1.datapool.batch.candidates import Members
from claw_r1.datapool.fold.readiness import is_evicted
from claw_r1.schemas.events import GroupRecord, TrajectoryRecord
from claw_r1.schemas.http import Channel
from claw_r1.trainer.dependencies import LivePool
from claw_r1.trainer.settings import TrainerSettings


def unaged(settings: TrainerSettings) -> TrainerSettings:
    """The same without a bound on age: `stale: tokens` would make context of every token of another run."""
    return settings.model_copy(update={"spec": settings.spec.model_copy(update={"stale": "group"})})


def is_sample(group: GroupRecord) -> bool:
    """Returns whether a group may ever be trained offline; see `claw_r1.trainer.app.may_concern`."""
    return group.channel != Channel.VALIDATION and not is_evicted(group)


class AnybodysSamples:
    """A `LivePool` around another one."""

    def __init__(self, pool: LivePool, run_id: str) -> None:
        self._pool = pool
        self._run_id = run_id
        self._own: dict[str, tuple[GroupRecord, GroupRecord]] = {}
        """By group_id: its row in the pool, and the same as a row of this run."""

    def groups(self) -> Sequence[GroupRecord]:
        rows = self._pool.groups()
        self._own = {row.group_id: (row, self._as_own(row)) for row in rows}
        return [own for _, own in self._own.values()]

    def trajectories(self, record: GroupRecord) -> Sequence[TrajectoryRecord] | None:
        row, _ = self._own.get(record.group_id, (record, record))
        return self._pool.trajectories(row)

    def members(self, record: GroupRecord) -> Members | None:
        row, _ = self._own.get(record.group_id, (record, record))
        members = self._pool.members(row)
        if members is None:
            return None
        unversioned = {"policy_run_id": self._run_id, "min_version": None, "max_version": None}
        return [(replace(trajectory, **unversioned), steps) for trajectory, steps in members]

    def forget(self, group_id: str) -> None:
        self._pool.forget(group_id)

    def wait_caught_up(self, timeout_s: float) -> None:
        self._pool.wait_caught_up(timeout_s)

    def _as_own(self, row: GroupRecord) -> GroupRecord:
        earlier = self._own.get(row.group_id)
        return earlier[1] if earlier is not None and earlier[0] is row else replace(row, run_id=self._run_id)
