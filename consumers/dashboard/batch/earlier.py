"""The pool as it was for a run when it planned a batch:
groups that it planned from there on are free.

The former state of groups is unknown. They are judged by their current rows, without those that a later version
sampled, or whose last fact is more recent than the plan.
"""

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from claw_r1.datapool.runs import Planned, RunIndex
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.schemas.events import BatchAssembled

LATER = "sampled_later"


class EarlierRuns(RunIndex):
    """The runs as they stood when one of them planned a batch."""

    def __init__(self, now: RunIndex, plan: BatchAssembled, unborn: Collection[str]) -> None:
        """unborn: groups that were not there."""
        super().__init__()
        self._now, self._plan, self._unborn = now, plan, unborn
        run = now.runs[plan.run_id]
        settled = {name for name in run.settled if self.planned(name) or name in run.skipped}
        earlier = replace(run, settled=settled.union(unborn), sequence_free=plan.sequence)
        self.runs, self.latest = {**now.runs, plan.run_id: earlier}, now.latest

    def planned(self, group_id: str) -> list[Planned]:
        """Batches before this one."""
        own, before = self._plan.run_id, self._plan.sequence
        return [each for each in self._now.planned(group_id) if each.run_id != own or each.sequence < before]

    def skipped(self, group_id: str) -> dict[str, str]:
        """run_id -> why it skipped the group."""
        later = {self._plan.run_id: LATER} if group_id in self._unborn else {}
        return later or self._now.skipped(group_id)


def runs_before(rows: PoolRows, now: RunIndex, plan: BatchAssembled) -> EarlierRuns:
    """Returns what runs had done when this batch was planned."""
    table = rows.tables.groups
    with np.errstate(invalid="ignore"):  # a group that nobody sampled has no version
        later = table.values("version_max") > plan.version
    later |= table.values("changed") > plan.envelope.occurred_at_us
    own = {each.group_id for each in plan.trajectories}
    names = {table.ids(number)[0] for number in np.flatnonzero(later & table.alive).tolist()}
    return EarlierRuns(now, plan, names - own)
