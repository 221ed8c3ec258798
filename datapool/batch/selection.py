"""The choice of the groups that make up a batch. Pure.

Invariant: a selection is a function of the pool's rows, the spec and the run's own history. Every group that is not
chosen has a reason that a person can read, of one of two kinds: `left_out` may change (more members, a reward) or
concerns another run; `skipped` never will for this run, so the run says so once in a BatchSkipped and the group's
admission capacity returns.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from claw_r1.datapool.batch.candidates import Pool, PooledGroup, with_members
from claw_r1.datapool.batch.eligibility import (
    CHANGING,
    ENVIRONMENT_FULL,
    Eligibility,
    Refusal,
    crowding,
    eligibility_of,
)
from claw_r1.datapool.batch.shares import Places, Quotas
from claw_r1.datapool.batch.spec import PRIORITY_TAG, BatchSpec
from claw_r1.datapool.fold import bounds
from claw_r1.schemas.events import GroupRecord

NUMBER = re.compile(r"-?\d+(\.\d+)?")
NEXT_BATCH = Refusal("wait", "next_batch")


@dataclass(frozen=True, slots=True)
class Selection:
    """`complete`: the chosen groups are a whole batch; otherwise wait and select again."""

    chosen: tuple[PooledGroup, ...]
    left_out: Mapping[str, str]
    skipped: Mapping[str, str]
    complete: bool
    foreign: frozenset[str] = frozenset()
    """The left out groups that concern another run or another spec."""
    missing: Mapping[str, int] = field(default_factory=dict)
    """Environment -> groups that it lacks in a batch that is not whole, where environments have shares."""


def select(
    pool: Pool, spec: BatchSpec, version: int, run_id: str, already_planned: Collection[str], sequence: int = 0
) -> Selection:
    """The groups that come first in the spec's order and make a batch for `version` of this run."""
    return Selector(pool, spec, run_id).select(version, already_planned, sequence)


class Selector:
    """Selects for one run again and again.

    Invariant: a selection equals one that remembers nothing. Whether a group is eligible is decided once for each row
    of it, whatever the version is and whether the batch is full; where no row has changed, the selection before is the
    answer.
    """

    def __init__(self, pool: Pool, spec: BatchSpec, run_id: str) -> None:
        self._pool = pool
        self._spec = spec
        self._run_id = run_id
        self._eligibilities: dict[str, tuple[GroupRecord, Eligibility]] = {}
        self._chosen: dict[str, PooledGroup] = {}
        self._last: tuple[list[GroupRecord], tuple[int, int], Selection] | None = None
        self._quotas = Quotas(spec.environments, spec.groups_per_batch)

    def select(self, version: int, already_planned: Collection[str], sequence: int = 0) -> Selection:
        """The groups that come first in the spec's order and make a batch for `version`. sequence: its number, which shares go by."""
        records = [record for record in self._pool.groups() if record.group_id not in already_planned]
        if self._last is not None and self._last[:2] == (records, (version, sequence)):
            return self._last[2]
        selection = self._select(ordered(records, self._spec), version, Places(self._quotas.of(sequence)))
        changing = {group_id for group_id, reason in selection.left_out.items() if reason == CHANGING.reason}
        steady = {record.group_id for record in records} - changing
        self._eligibilities = {group_id: self._eligibilities[group_id] for group_id in steady}
        self._chosen = {group.record.group_id: group for group in selection.chosen}
        self._last = None if changing else (records, (version, sequence), selection)
        return selection

    def _select(self, records: Sequence[GroupRecord], version: int, places: Places) -> Selection:
        picked: list[tuple[GroupRecord, PooledGroup | None]] = []
        refusals: dict[str, Refusal] = {}
        tokens, size, full = 0, 0, False
        for record in records:
            eligibility, group = self._eligibility(record)
            refusal = eligibility.refusal_at(version, self._spec)
            if refusal is None and not full and (environment := places.without_place(record)):
                refusal = Refusal("wait", f"{ENVIRONMENT_FULL}: {environment}")
            if refusal is None:
                tokens, size = tokens + eligibility.response_tokens, size + eligibility.plan_bytes
                too_large = size > bounds.PLAN_BYTES_MAX or tokens > (self._spec.response_tokens_max or math.inf)
                full = full or len(picked) == self._spec.groups_per_batch or too_large
                refusal = NEXT_BATCH if full else None
            if refusal is None:
                picked.append((record, group))
                places.take(record)
            else:
                refusals[record.group_id] = refusal
        full = full or len(picked) == self._spec.groups_per_batch
        refused = ((record, refusals[record.group_id]) for record in records if record.group_id in refusals)
        for record in list(crowding(refused, self._spec, self._run_id, full=full)):
            refusals[record.group_id] = replace(refusals[record.group_id], kind="never")
        return replace(self._read(picked, refusals, full=full), missing={} if full else places.missing)

    def _eligibility(self, record: GroupRecord) -> tuple[Eligibility, PooledGroup | None]:
        """Decides by a row, and returns the group where its members are in memory."""
        earlier_record, eligibility = self._eligibilities.get(record.group_id, (None, None))
        if eligibility is not None and (earlier_record is record or earlier_record == record):
            return eligibility, self._chosen.get(record.group_id)
        eligibility, group = eligibility_of(self._pool, record, self._spec, self._run_id)
        self._eligibilities[record.group_id] = record, eligibility
        return eligibility, group

    def _read(
        self, picked: Iterable[tuple[GroupRecord, PooledGroup | None]], refusals: dict[str, Refusal], *, full: bool
    ) -> Selection:
        """The selection, with the members of the picked groups that were found eligible earlier."""
        chosen: list[PooledGroup] = []
        for record, in_memory in picked:
            group = in_memory or with_members(self._pool, record, self._spec)
            if group is None:
                refusals[record.group_id], full = CHANGING, False
            else:
                chosen.append(group)
        return Selection(
            tuple(chosen),
            left_out={name: refusal.reason for name, refusal in refusals.items() if refusal.kind != "never"},
            skipped={name: refusal.reason for name, refusal in refusals.items() if refusal.kind == "never"},
            complete=full,
            foreign=frozenset(name for name, refusal in refusals.items() if refusal.kind == "foreign"),
        )


def ordered(groups: Iterable[GroupRecord], spec: BatchSpec) -> list[GroupRecord]:
    """Groups in the spec's order. Old = low (last_progress_us, group_id): the fact that completed the group, on its
    producer's clock."""
    oldest = sorted(groups, key=lambda row: (row.last_progress_us, row.group_id))
    if spec.order == "newest":
        return oldest[::-1]
    return oldest if spec.order == "fifo" else sorted(oldest, key=lambda row: -priority(row))


def priority(record: GroupRecord) -> float:
    """The highest number that a tag `priority:<number>` names, else 0."""
    return tag_priority(record.tags)


def tag_priority(tags: Iterable[str]) -> float:
    """The same of a group's tags."""
    numbers = [tag.removeprefix(PRIORITY_TAG) for tag in tags if tag.startswith(PRIORITY_TAG)]
    return max((float(number) for number in numbers if NUMBER.fullmatch(number)), default=0.0)
