"""A preview of the next batch of a spec, and the reason why each other group is not in it: of a view's rows, what runs did, and
the facts that a plan would name."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from statistics import fmean
from typing import NamedTuple

import numpy as np

from claw_r1.datapool.batch.candidates import Members, Pool, PooledGroup, PooledTrajectory, all_equal
from claw_r1.datapool.batch.masks import mask_at
from claw_r1.datapool.batch.members import baseline_only, trained_members
from claw_r1.datapool.batch.plan import assemble, staleness_of
from claw_r1.datapool.batch.rewards import slots_never_rewarded
from claw_r1.datapool.batch.selection import Selection, select, tag_priority
from claw_r1.datapool.batch.sequences import TrainingRow
from claw_r1.datapool.batch.shares import unknown_environments
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.errors import FactUnreadable
from claw_r1.datapool.runs import RunIndex
from claw_r1.datapool.view.conversations import CallBodies
from claw_r1.datapool.view.planned_rows import FactSource, RenderedCall, rows_of, unreadable_groups
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.datapool.view.why import Perspective
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import BatchAssembled, GroupRecord
from claw_r1.schemas.json_values import JsonDict

CHANGING = "rows_changing"


class FirstGroups:
    """A pool that begins as another one does in a spec's order, and ends after so many members.
    The result of the first groups is equal in both, so a batch that is whole here is the batch."""

    def __init__(self, rows: PoolRows, perspective: Perspective, settled: set[str], trajectories_max: int) -> None:
        self._rows, self._groups = rows, list[GroupRecord]()
        self.names = ids_in_order(rows, perspective.spec)
        """The names of all groups, also of those that were not looked at."""
        self.beyond: set[str] = set()
        """Groups that were not looked at."""
        room = trajectories_max
        for name in self.names:
            if name in settled:
                continue
            if room <= 0:
                self.beyond.add(name)
            elif (whole := rows.group(name)) is not None:
                self._groups.append(whole)
                room -= max(len(whole.members), 1)
            else:
                room -= 1

    def groups(self) -> list[GroupRecord]:
        """Returns the groups that are whole."""
        return self._groups

    def members(self, record: GroupRecord) -> Members | None:
        """Returns the members that the whole pool has."""
        return self._rows.members(record)


def ids_in_order(rows: PoolRows, spec: BatchSpec) -> list[str]:
    """Ids of all groups as `selection.ordered` has them, without reading the rows of a listed view."""
    table = rows.tables.groups
    alive = np.flatnonzero(table.alive)
    numbers = alive[np.lexsort((table.ranks()[alive], np.nan_to_num(table.values("changed")[alive])))]
    if spec.order == "newest":
        numbers = numbers[::-1]
    elif spec.order == "priority":
        by_code = np.array([*map(tag_priority, table.words["tags"]), 0.0])  # the last of groups without tags
        codes = np.nan_to_num(table.values("tags")[numbers], nan=len(by_code) - 1).astype(int)
        numbers = numbers[np.argsort(-by_code[codes], kind="stable")]
    return [table.ids(number)[0] for number in numbers.tolist()]


class Moment(NamedTuple):
    """A selection at one moment of the pool, and the reasons of all others by kind."""

    selection: Selection
    reasons: dict[str, dict[str, str]]
    warnings: list[str]
    not_looked_at: int


class Preview(NamedTuple):
    """`answer`: counts of the batch, and a reason for each group that is not in it. `rows`: as a trainer would have them;
    `TrainingRow.trajectory` is the index into `members`, those of all chosen groups."""

    answer: JsonDict
    members: list[PooledTrajectory]
    rows: list[TrainingRow]


Look = Callable[[PoolRows, RunIndex], Moment]


def previewed(
    ask: Callable[[Look], Moment], facts: FactSource, perspective: Perspective, trajectories_max: int | None = None
) -> Preview:
    """The batch that would be chosen now. Groups that cannot be read have that reason, and others take their places, as in a
    trainer.

    ask: puts a question to the rows and the runs as they are at one moment; facts are read outside of it. trajectories_max:
    after so many, in the spec's order, no more are looked at; `not_looked_at` counts the groups of the others.
    """
    broken: dict[str, str] = {}
    while True:
        moment = ask(partial(_look, perspective=perspective, broken=broken, trajectories_max=trajectories_max))
        plan = _planned(moment.selection.chosen, perspective)
        try:
            rows = rows_of(plan, facts, None, _without_ids)
        except FactUnreadable:
            unreadable = unreadable_groups(plan, facts, None, _without_ids)
            if not unreadable:
                raise  # each of them alone can be read
            broken |= unreadable
        else:
            members = [member for group in moment.selection.chosen for member in group.members]
            return Preview(_answer(moment, perspective, plan, rows), members, rows)


def _look(
    rows: PoolRows, runs: RunIndex, *, perspective: Perspective, broken: dict[str, str], trajectories_max: int | None
) -> Moment:
    run = runs.runs.get(perspective.run_id)
    settled = run.settled if run else set()
    bounded = None if trajectories_max is None else FirstGroups(rows, perspective, settled, trajectories_max)
    pool: Pool = bounded or rows
    sequence = run.sequence_free if run else 0
    selection = select(
        pool, perspective.spec, perspective.version, perspective.run_id, settled | broken.keys(), sequence
    )
    names = bounded.names if bounded else [record.group_id for record in rows.group_rows()]
    unspoken = broken.keys() | (bounded.beyond if bounded else set())
    others = _others([name for name in names if name not in unspoken], runs, perspective, selection)
    left_out = {**selection.left_out, **{name: CHANGING for name, why in others.items() if why is None}}
    reasons = {
        "waits": {name: why for name, why in left_out.items() if name not in selection.foreign},
        "never": {**selection.skipped, **broken},
        "foreign": {name: left_out[name] for name in selection.foreign},
        "settled": {name: why for name, why in others.items() if why is not None},
    }
    tags = {tag for record in rows.group_rows() for tag in record.tags} if perspective.spec.environments else set()
    warnings = slots_never_rewarded(perspective.spec, rows.reward_slots)
    warnings += unknown_environments(perspective.spec.environments, tags)
    return Moment(selection, reasons, warnings, len(bounded.beyond) if bounded else 0)


def _planned(chosen: Collection[PooledGroup], perspective: Perspective) -> BatchAssembled:
    return assemble(
        chosen,
        perspective.spec,
        run_id=perspective.run_id,
        sequence=0,
        version=perspective.version,
        seed=0,
        envelope=envelope("preview", run_id=perspective.run_id),
    )


def _without_ids(_: CallBodies) -> RenderedCall:
    """A call whose server gave no ids makes no row here: the trainer renders it, by its model's template."""
    return RenderedCall(b"", b"")


def _answer(moment: Moment, perspective: Perspective, plan: BatchAssembled, rows: Sequence[TrainingRow]) -> JsonDict:
    selection, reasons = moment.selection, moment.reasons
    return {
        "run_id": perspective.run_id,
        "version": perspective.version,
        "algorithm": perspective.spec.algorithm,
        "complete": selection.complete,
        "groups_wanted": perspective.spec.groups_per_batch,
        **({"environments_missing": dict(selection.missing)} if selection.missing else {}),
        "warnings": moment.warnings,
        **_counts(selection.chosen, perspective, rows),
        **_rewards(plan),
        "chosen": [group.record.group_id for group in selection.chosen],
        "left_out": dict(sorted({name: why for named in reasons.values() for name, why in named.items()}.items())),
        "reasons": {kind: _counted(named.values()) for kind, named in reasons.items() if named},
        "not_looked_at": moment.not_looked_at,
    }


def _others(
    names: Iterable[str], runs: RunIndex, perspective: Perspective, selection: Selection
) -> dict[str, str | None]:
    """Groups that selection does not speak of: how the run settled them, or None: their rows are of different moments."""
    selected = (
        {group.record.group_id for group in selection.chosen} | selection.left_out.keys() | selection.skipped.keys()
    )
    return {name: _settled(runs, perspective.run_id, name) for name in names if name not in selected}


def _settled(runs: RunIndex, run_id: str, group_id: str) -> str | None:
    for batch in runs.planned(group_id):
        if batch.run_id == run_id:
            return f"planned_in_batch_{batch.sequence}"
    skipped = runs.skipped(group_id).get(run_id)
    return skipped and f"skipped: {skipped}"


def _counts(chosen: Sequence[PooledGroup], perspective: Perspective, training_rows: Sequence[TrainingRow]) -> JsonDict:
    """Sizes of a batch; why parts of chosen groups are not trained.

    `tokens_saved` is the size of its calls one by one minus that of its rows.
    """
    spec = perspective.spec
    members = [member for group in chosen for member in trained_members(group, spec)]
    steps = [(step, mask_at(step, member, spec, perspective.version)) for member in members for step in member.steps]
    trained = [step for step, mask in steps if mask is None]
    one_by_one = sum(step.prompt_length + step.response_length for step in trained)
    row_tokens = sum(map(len, training_rows))
    return {
        "groups": len(chosen),
        "trajectories": sum(len(group.members) for group in chosen),
        "trajectories_trained": len(members),
        "dropped": _counted(why for group in chosen for why in group.dropped.values()),
        "baseline_only": _counted(why for group in chosen for why in baseline_only(group, spec).values()),
        "responses_trained": len(trained),
        "response_tokens": sum(row.trained_tokens for row in training_rows),
        "masked": _counted(mask.word for _, mask in steps if mask is not None),
        "rows": len(training_rows),
        "row_tokens": row_tokens,
        "row_tokens_max": max(map(len, training_rows), default=0),
        "tokens_saved": one_by_one - row_tokens,
    }


def _rewards(plan: BatchAssembled) -> JsonDict:
    """Over all members, as the trainer's metrics of the plan: without a reward a member is worth 0. `zero_variance_groups`
    teach nothing, except where no group baseline is."""
    by_group: dict[str, list[float]] = defaultdict(list)
    for each in plan.trajectories:
        by_group[each.group_id].append(each.reward)
    return {
        "return_mean": fmean(each.reward for each in plan.trajectories) if plan.trajectories else None,
        "zero_variance_groups": sum(map(all_equal, by_group.values())),
        "staleness_max": max(staleness_of(plan), default=0),
    }


def _counted(words: Iterable[str]) -> dict[str, int]:
    """The most frequent first."""
    return dict(sorted(Counter(words).items(), key=lambda item: (-item[1], item[0])))
