"""The index of each run's work on groups, read from the runs' own events: who trained what, who skipped it and why. A
fold; pure.

Input: claw.training.batches in the order of each partition. Replaying gives the same index.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from claw_r1.schemas.events import BatchAssembled, BatchSkipped, BatchTrained, Event, RunEnded, RunStarted


@dataclass(frozen=True, slots=True)
class Planned:
    """A group in a batch: its ready members of then, and which of their calls it trains."""

    run_id: str
    sequence: int
    spec: str
    """The spec of the plan: JSON of a `BatchSpec`."""
    oldest_version: int | None = None
    """Tokens of older versions are context only; None: all may be trained."""
    reward: dict[str, float] = field(default_factory=dict)
    """By trajectory_id, as are the others; one that was not ready then is in none of them."""
    advantage: dict[str, float] = field(default_factory=dict)
    """The advantage of a trajectory whose calls share one; under a critic 0, for that is made when the batch is
    trained."""
    call_advantages: dict[str, dict[str, float]] = field(default_factory=dict)
    """By call_id, of a trajectory whose calls differ; a trajectory whose calls share one is not in it."""
    trained: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """call_ids whose responses are trained."""
    masked: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """call_ids whose responses are read as context and not trained; a member that the spec left out has neither kind."""


@dataclass(slots=True)
class RunState:
    """One run as far as its events tell."""

    spec: str = ""
    version: int = 0
    versions: dict[int, int] = field(default_factory=dict)
    """sequence -> version it made."""
    settled: set[str] = field(default_factory=set)
    ended: bool = False


class RunIndex:
    """By group: the batches that hold it, and the runs that skipped it."""

    def __init__(self) -> None:
        self.runs: dict[str, RunState] = {}
        self.latest: str | None = None
        """The run that was heard of last."""
        self._planned: dict[str, dict[tuple[str, int], Planned]] = defaultdict(dict)
        self._skipped: dict[str, dict[str, str]] = defaultdict(dict)

    def apply(self, event: Event) -> None:
        """One more event; of other kinds nothing is noted."""
        if not isinstance(event, RunStarted | BatchAssembled | BatchTrained | BatchSkipped | RunEnded):
            return
        run = self.runs.setdefault(event.run_id, RunState())
        self.latest = event.run_id
        match event:
            case BatchAssembled():
                self._assembled(run, event)
            case BatchTrained():
                run.versions[event.sequence] = event.version
                run.version = max(run.version, event.version)
            case BatchSkipped():
                self._gave_up(run, event)
            case RunStarted() | RunEnded():
                run.ended = isinstance(event, RunEnded)

    def _assembled(self, run: RunState, plan: BatchAssembled) -> None:
        run.spec = plan.spec
        run.version = max(run.version, plan.version)
        for trajectory in plan.trajectories:
            run.settled.add(trajectory.group_id)
            batches = self._planned[trajectory.group_id]
            place = (plan.run_id, plan.sequence)
            batch = batches.setdefault(place, Planned(plan.run_id, plan.sequence, plan.spec, plan.oldest_version))
            batch.reward[trajectory.trajectory_id] = trajectory.reward
            batch.advantage[trajectory.trajectory_id] = trajectory.advantage
            own = {step.call_id: step.advantage for step in trajectory.steps if step.advantage is not None}
            if own:
                batch.call_advantages[trajectory.trajectory_id] = own
            for of_kind, trained in ((batch.trained, True), (batch.masked, False)):
                calls = (step.call_id for step in trajectory.steps if step.trained is trained)
                of_kind[trajectory.trajectory_id] = tuple(calls)

    def _gave_up(self, run: RunState, event: BatchSkipped) -> None:
        """A batch that is given up was never trained and never will be: its groups are skipped like any others."""
        run.settled.update(event.group_ids)
        for group_id in event.group_ids:
            self._skipped[group_id][event.run_id] = event.reason
            if event.sequence is not None:
                self._planned[group_id].pop((event.run_id, event.sequence), None)

    def planned(self, group_id: str) -> list[Planned]:
        """Batches that hold the group, in order of (run, sequence)."""
        return [batch for _, batch in sorted(self._planned.get(group_id, {}).items())]

    def naming(self, name: str) -> list[tuple[str, int]]:
        """(run, sequence) of each plan that holds a group, trajectory or call of this id, in order."""
        places = {(batch.run_id, batch.sequence) for batch in self.planned(name)}
        for batches in self._planned.values():
            for place, batch in batches.items():
                calls = (*batch.trained.values(), *batch.masked.values())
                if name in batch.reward or any(name in of_one for of_one in calls):
                    places.add(place)
        return sorted(places)

    def skipped(self, group_id: str) -> dict[str, str]:
        """run_id -> why it skipped the group."""
        return dict(self._skipped.get(group_id, {}))

    def version_made(self, batch: Planned) -> int | None:
        """The weights version that the batch made, or None while it is not trained."""
        return self.runs[batch.run_id].versions.get(batch.sequence)
