"""The plans of the runs: no step twice, no batch left out, no version number used for other bytes.

Memory: an id per planned step and per version, an entry per planned call and what different plans say of it.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from claw_r1.consumers.verify.report import Report
from claw_r1.eventlog.kafka.reader import read_topics
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.errors import UndecodableRecord
from claw_r1.schemas.events import BatchAssembled, BatchSkipped, BatchTrained, Event, FactPosition, WeightsPublished
from claw_r1.schemas.topics import BATCHES, CALLS, WEIGHTS, Topic


class PlannedCall(NamedTuple):
    """The part of a plan about one fact."""

    digest: str
    where: str
    oldest_version: int | None = None
    """Below this version nothing of the call may be trained; None: no limit, or the plan trains nothing of it."""


@dataclass(slots=True)
class VerifiedRun:
    """The records of one run."""

    steps: set[tuple[str, str, str]] = field(default_factory=set)
    planned: list[int] = field(default_factory=list)
    trained: dict[int, int] = field(default_factory=dict)
    """Sequence -> version."""
    given_up: set[int] = field(default_factory=set)
    """Sequences of plans that could not be read any more."""
    digests: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Version -> digests published under its number."""


@dataclass(slots=True)
class Runs:
    """All runs, and the facts that their plans point to: partition -> offset in claw.calls -> what plans say."""

    runs: dict[str, VerifiedRun] = field(default_factory=lambda: defaultdict(VerifiedRun))
    calls: dict[int, dict[int, tuple[PlannedCall, ...]]] = field(default_factory=lambda: defaultdict(dict))

    def of_partition(self, partition: int) -> dict[int, tuple[PlannedCall, ...]]:
        """Planned calls by offset."""
        return self.calls.get(partition, {})

    def plan_call(self, at: FactPosition, call: PlannedCall) -> None:
        """Plans of several runs name the same call: each is checked, unless an earlier one says the same of it."""
        calls = self.calls[at.partition]
        earlier = calls.get(at.offset, ())
        if all((other.digest, other.oldest_version) != (call.digest, call.oldest_version) for other in earlier):
            calls[at.offset] = (*earlier, call)


def read_runs(settings: LogSettings, run_id: str | None, report: Report) -> Runs:
    """Every run, or the one named; what breaks a promise goes to the report at once. Raises BrokerUnreachable."""
    runs = Runs()
    calls = settings.catalogue().name(CALLS)
    for event in _events(settings, (BATCHES, WEIGHTS), report):
        if run_id is not None and getattr(event, "run_id", None) != run_id:
            continue
        if isinstance(event, BatchAssembled):
            _plan(runs, event, calls, report)
        elif isinstance(event, BatchTrained):
            runs.runs[event.run_id].trained[event.sequence] = event.version
        elif isinstance(event, BatchSkipped) and event.sequence is not None:
            runs.runs[event.run_id].given_up.add(event.sequence)
        elif isinstance(event, WeightsPublished):
            runs.runs[event.run_id].digests[event.version].add(event.digest)
    for name, run in runs.runs.items():
        _judge(name, run, report)
    return runs


def _events(settings: LogSettings, topics: Sequence[Topic], report: Report) -> Iterator[Event]:
    for record in read_topics(settings, topics):
        try:
            yield record.event()
        except UndecodableRecord as broken:
            report.found("unreadable", f"{record.topic}[{record.partition}] {record.offset}: {broken.reason}")


def _plan(runs: Runs, plan: BatchAssembled, calls: str, report: Report) -> None:
    run = runs.runs[plan.run_id]
    run.planned.append(plan.sequence)
    where = f"{plan.run_id} batch {plan.sequence}"
    for why in contradictions(plan):
        report.found("plan_contradictory", f"{where}: {why}")
    for trajectory in plan.trajectories:
        for step in trajectory.steps:
            step_id = trajectory.group_id, trajectory.trajectory_id, step.call_id
            name = f"{where}: {'/'.join(step_id)}"
            if step.trained:
                report.counts["steps_planned"] += 1
                if step_id in run.steps:
                    report.found("step_repeated", name)
                run.steps.add(step_id)
            if (at := step.position).topic == calls:
                oldest = plan.oldest_version if step.trained else None
                runs.plan_call(at, PlannedCall(step.digest, name, oldest))


def contradictions(plan: BatchAssembled) -> Iterator[str]:
    """Yields contradictions that no trainer of ours would have planned. Rewards of calls were not frozen before, so all
    of them 0 says nothing."""
    if plan.oldest_version is not None and plan.oldest_version > plan.version:
        yield f"oldest_version {plan.oldest_version} is above version {plan.version}"
    for trajectory in plan.trajectories:
        name = f"{trajectory.group_id}/{trajectory.trajectory_id}"
        rewards = [step.reward for step in trajectory.steps]
        if any(rewards) and not math.isclose(math.fsum(rewards), trajectory.reward, rel_tol=1e-6, abs_tol=1e-6):
            yield f"{name}: its calls earned {math.fsum(rewards):g}, it earned {trajectory.reward:g}"
        for step in trajectory.steps:
            weights = (1.0, 0.0, 1.0) if step.weights is None else step.weights
            if len(weights) != 3 or not all(0 <= weight < math.inf for weight in weights):
                yield f"{name}/{step.call_id}: weights {list(weights)}"


def _judge(name: str, run: VerifiedRun, report: Report) -> None:
    report.counts["runs"] += 1
    report.counts["batches_planned"] += len(run.planned)
    report.counts["batches_trained"] += len(run.trained)
    report.counts["batches_given_up"] += len(run.given_up)
    report.counts["versions"] += len(run.digests)
    seen: set[int] = set()
    for sequence in run.planned:
        if sequence in seen:
            report.found("sequence_repeated", f"{name} batch {sequence}")
        seen.add(sequence)
    for sequence in _gaps(seen):
        report.found("sequence_missing", f"{name} batch {sequence} was never planned")
    for sequence in _gaps(set(run.trained) | run.given_up):
        report.found("sequence_missing", f"{name} batch {sequence} was never trained")
    _judge_trained(name, run, seen, report)
    for version, digests in sorted(run.digests.items()):
        if len(digests) > 1:
            report.found("version_reused", f"{name} version {version}: {', '.join(sorted(digests))}")


def _judge_trained(name: str, run: VerifiedRun, planned: set[int], report: Report) -> None:
    for sequence, version in sorted(run.trained.items()):
        if sequence not in planned:
            report.found("trained_without_plan", f"{name} batch {sequence}")
        if sequence in run.given_up:
            report.found("trained_and_given_up", f"{name} batch {sequence}")
        if version not in run.digests:
            report.found("version_missing", f"{name} version {version}, trained by batch {sequence}")


def _gaps(sequences: set[int]) -> list[int]:
    return sorted(set(range(max(sequences, default=-1) + 1)) - sequences)
