"""The two questions: what is in a version, and where did a call go."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from claw_r1.datapool.runs import Keeps, PublishedVersion, Run, RunsById, runs_of
from claw_r1.eventlog.kafka.reader import read_topics
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.events import BatchAssembled, PlannedStep, PlannedTrajectory
from claw_r1.schemas.keys import parts
from claw_r1.schemas.topics import BATCHES, STEPS, WEIGHTS


@dataclass(frozen=True, slots=True)
class TracedBatch:
    """A batch, or the part of it that the question is about."""

    run_id: str
    sequence: int
    from_version: int
    """The version that was trained, and that made the next one."""
    made_version: int | None
    versions: tuple[int, ...]
    """Published ones whose weights went through this batch."""
    trajectories: tuple[PlannedTrajectory, ...]
    """Whole, because a request may be written as a change against an earlier one."""
    oldest_version: int | None = None
    """Tokens of older versions were context only; None: all were trained."""
    call_id: str | None = None
    """The call that the question is about; None: all of them."""

    def steps(self, planned: PlannedTrajectory) -> tuple[PlannedStep, ...]:
        """Returns the steps that the question is about."""
        return tuple(step for step in planned.steps if self.call_id in (None, step.call_id))


@dataclass(frozen=True, slots=True)
class VersionTrace:
    """A version and the batches in its weights, the latest first."""

    version: PublishedVersion
    batches: tuple[TracedBatch, ...]


@dataclass(frozen=True, slots=True)
class DataTrace:
    """The trace of a group, trajectory or call. Without batches: what the pool knows of it, and which runs skipped
    it."""

    batches: tuple[TracedBatch, ...]
    pooled: tuple[tuple[str, ...], ...] = ()
    """(group_id, trajectory_id, call_id) of the pool's steps of this id"""
    skipped: tuple[tuple[str, str, str], ...] = ()
    """(run_id, group_id, reason)"""


def trace_version(settings: LogSettings, run_id: str, version: int, *, every: bool) -> VersionTrace | None:
    """The batch that made a version, or every batch in it; None when nobody published it."""
    last = last_batch(runs_of(read_topics(settings, [WEIGHTS])), run_id, version)

    def holds(plan: BatchAssembled) -> bool:
        return (
            plan.run_id == run_id and last is not None and (plan.sequence <= last if every else plan.sequence == last)
        )

    return version_trace(_runs(settings, holds), run_id, version)


def last_batch(runs: RunsById, run_id: str, version: int) -> int | None:
    """The last batch in a published version's weights; None: initial weights, or nobody published it."""
    named = runs.get(run_id, Run()).published.get(version)
    return None if named is None else named.sequence


def version_trace(runs: RunsById, run_id: str, version: int) -> VersionTrace | None:
    """The same of what was read already: runs hold the plans that the question is about, and no others."""
    run = runs.get(run_id, Run())
    named = run.published.get(version)
    if named is None:
        return None
    plans = sorted(run.plans.values(), key=lambda plan: -plan.sequence)
    return VersionTrace(named, tuple(_batch(run, plan, plan.trajectories) for plan in plans))


def trace_data(settings: LogSettings, name: str) -> DataTrace:
    """Every batch that names a group, trajectory or call of this id."""
    runs = _runs(settings, lambda plan: any(_names(item, name) for item in plan.trajectories))
    return data_trace(runs, name, lambda: _pooled(settings, name))


def data_trace(runs: RunsById, name: str, pooled: Callable[[], Iterable[tuple[str, ...]]]) -> DataTrace:
    """The same of what was read already: runs hold the plans that name the id. pooled: ids of the pool's steps of this id, asked
    for where no plan names it."""
    batches = tuple(_batches(runs, name))
    if batches:
        return DataTrace(batches)
    steps = tuple(pooled())
    groups = {name, *(group_id for group_id, *_ in steps)}
    skipped = [
        (run_id, group_id, reason)
        for run_id, run in sorted(runs.items())
        for group_id, reason in sorted(run.skipped.items())
        if group_id in groups
    ]
    return DataTrace((), steps, tuple(skipped))


def _runs(settings: LogSettings, keeps: Keeps) -> RunsById:
    """Every run with the plans that `keeps` takes: read last, so that none is missing which a version was made of."""
    return runs_of(chain(read_topics(settings, [WEIGHTS]), read_topics(settings, [BATCHES])), keeps)


def _batches(runs: RunsById, name: str) -> Iterator[TracedBatch]:
    for _, run in sorted(runs.items()):
        for _, plan in sorted(run.plans.items()):
            wholes = tuple(
                trajectory
                for trajectory in plan.trajectories
                if name in (trajectory.group_id, trajectory.trajectory_id)
            )
            parts_of = tuple(trajectory for trajectory in plan.trajectories if _names_call(trajectory, name))
            yield _batch(run, plan, wholes or parts_of, None if wholes else name)


def _names(planned: PlannedTrajectory, name: str) -> bool:
    return name in (planned.group_id, planned.trajectory_id) or _names_call(planned, name)


def _names_call(planned: PlannedTrajectory, name: str) -> bool:
    return any(step.call_id == name for step in planned.steps)


def _batch(
    run: Run, plan: BatchAssembled, trajectories: tuple[PlannedTrajectory, ...], call_id: str | None = None
) -> TracedBatch:
    return TracedBatch(
        run_id=plan.run_id,
        sequence=plan.sequence,
        from_version=plan.version,
        made_version=trained.version if (trained := run.trained.get(plan.sequence)) else None,
        versions=tuple(run.versions_with(plan.sequence)),
        trajectories=trajectories,
        oldest_version=plan.oldest_version,
        call_id=call_id,
    )


def _pooled(settings: LogSettings, name: str) -> tuple[tuple[str, ...], ...]:
    """Steps whose key names the id; no value is decoded."""
    matches: set[tuple[str, ...]] = set()
    for record in read_topics(settings, [STEPS]):
        if name in (ids := parts(record.key or b"")):
            matches.add(ids)
    return tuple(sorted(matches))
