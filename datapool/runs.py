"""The work of training runs, folded from their events: what each run did, and which run trained or skipped a group. Pure.

Input: claw.training.batches and claw.weights in the order of each partition. Replaying gives the same.
An event costs the same however many came before it, and of a plan that the caller does not keep only its groups' ids stay.
"""

import itertools
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

import orjson
from msgspec.structs import replace

from claw_r1.datapool.batch.eligibility import word_of
from claw_r1.datapool.batch.plan import groups_of
from claw_r1.eventlog.records import Record, readable
from claw_r1.schemas.codec import event_name
from claw_r1.schemas.errors import UndecodableRecord
from claw_r1.schemas.events import (
    BatchAssembled,
    BatchSkipped,
    BatchTrained,
    Event,
    RunEnded,
    RunStarted,
    VersionEvaluated,
    WeightsPublished,
)
from claw_r1.schemas.json_values import JsonDict

Keeps = Callable[[BatchAssembled], bool]
RunStatus = Literal["starting", "running", "stopped", "ended"]
OF_RUNS = (RunStarted, BatchAssembled, BatchTrained, BatchSkipped, VersionEvaluated, WeightsPublished, RunEnded)
QUIET_S_MIN = 120.0
QUIET_BATCHES = 10
"""A run that wrote nothing for so long, or for so many times its usual gap between batches,
is taken for stopped."""
START_S_MAX = 3600.0
"""The same for a run that has no batch yet, and so no rhythm."""


@dataclass(frozen=True, slots=True)
class PublishedVersion:
    """A published version without its tensors."""

    run_id: str
    version: int
    model_id: str
    sequence: int | None
    """The last batch in these weights; None: initial weights."""
    digest: str
    checkpoint_uri: str | None
    """Directory in Hugging Face's format with exactly these weights, where one was written."""
    published_us: int


@dataclass(slots=True)
class Run:
    """One run as far as its events tell; of other kinds nothing is noted."""

    run_id: str = ""
    keeps: Keeps = lambda _: False
    """The plans that are kept whole."""
    incarnations: int = 0
    started: RunStarted | None = None
    """The newest."""
    started_us: int = 0
    seen_us: int = 0
    """The time of the run's newest record, of whatever type, where the reader tells; UTC microseconds."""
    plans: dict[int, BatchAssembled] = field(default_factory=dict)
    """By sequence number, of those that are kept and were not given up."""
    spec: str = ""
    """The spec of the newest plan: JSON of a `BatchSpec`."""
    sequence_free: int = 0
    """The number above those of all plans; there is a plan for each number below."""
    settled: set[str] = field(default_factory=set)
    """Groups that the run planned or skipped: it plans none of them again."""
    trained: dict[int, BatchTrained] = field(default_factory=dict)
    """By sequence number."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Group -> why this run will never train it."""
    skip_reasons: Counter[str] = field(default_factory=Counter)
    """Groups by the first words of why they are never trained, numbers in them aside."""
    given_up: set[int] = field(default_factory=set)
    """Batches that were planned and could not be read any more: never trained."""
    published: dict[int, PublishedVersion] = field(default_factory=dict)
    evaluations: dict[int, VersionEvaluated] = field(default_factory=dict)
    """By version; the last word on each."""
    ended: RunEnded | None = None
    """Its end, unless it was started again behind it."""
    _newest: int = -1

    @property
    def model_id(self) -> str:
        return self.started.model_id if self.started else ""

    @property
    def config(self) -> JsonDict:
        """Settings of the newest incarnation; empty where they are no JSON object: another program may have written the run."""
        try:
            value = orjson.loads(self.started.config if self.started else "{}")
        except orjson.JSONDecodeError:
            return {}
        return value if isinstance(value, dict) else {}

    @property
    def batches(self) -> list[BatchTrained]:
        """In order of their sequence."""
        return [self.trained[sequence] for sequence in sorted(self.trained)]

    @property
    def version(self) -> int | None:
        """The newest version that is known to exist."""
        return self._newest if self._newest >= 0 else 0 if self.incarnations else None

    @property
    def version_free(self) -> int:
        """The lowest version number above all that were ever published."""
        return max(self.published, default=-1) + 1

    @property
    def exported(self) -> PublishedVersion | None:
        """The highest version that was published with an export."""
        return max((v for v in self.published.values() if v.checkpoint_uri), key=lambda v: v.version, default=None)

    @property
    def best(self) -> VersionEvaluated | None:
        """The evaluation of the best version, the last one that was called so: an earlier version may be judged later.

        One of held-out tasks, where there is any.
        """
        called_best = [each for each in self.evaluations.values() if each.best]
        held_out = [each for each in called_best if each.held_out]
        return next(reversed(held_out or called_best), None)

    def series(self, metric: str) -> list[tuple[int, float]]:
        """(sequence, value) of each batch that has this metric."""
        return [(batch.sequence, batch.metrics[metric]) for batch in self.batches if metric in batch.metrics]

    def versions_with(self, sequence: int) -> list[int]:
        """Published versions whose weights went through this batch, ascending."""
        through = (v for v in self.published.values() if v.sequence is not None and v.sequence >= sequence)
        return sorted(version.version for version in through)

    def state(self, now_us: int) -> RunStatus:
        """ended: it says so. starting: no batch yet. Else running, unless it was quiet for longer than it ever should
        be: a trainer says nothing when it stops."""
        if self.ended is not None:
            return "ended"
        quiet_s = (now_us - self.seen_us) / 1e6
        if self.batch_s is None:
            return "starting" if quiet_s <= START_S_MAX else "stopped"
        return "running" if quiet_s <= max(QUIET_S_MIN, QUIET_BATCHES * self.batch_s) else "stopped"

    @property
    def batch_s(self) -> float | None:
        """The median of the seconds between its batches, the first one since its start; None: there is none."""
        times = [*filter(None, [self.started_us]), *map(trained_us, self.batches)]
        gaps = [max(0, later - earlier) / 1e6 for earlier, later in itertools.pairwise(times)]
        return statistics.median(gaps or [0.0]) if self.trained else None

    def take(self, event: Event) -> None:
        """One more event of this run, in the order of the log; a later one of the same batch or version replaces the earlier."""
        match event:
            case RunStarted():
                self.incarnations, self.started, self.ended = self.incarnations + 1, event, None
                self.started_us = self.started_us or event.envelope.occurred_at_us
            case BatchAssembled():
                self._take_plan(event)
            case BatchTrained():
                self.trained[event.sequence] = replace(event, group_ids=())  # `settled` has them
                self._newest = max(self._newest, event.version)
            case BatchSkipped():
                self._take_skipped(event)
            case VersionEvaluated():
                self.evaluations[event.version] = event
            case WeightsPublished():
                self._take_weights(event)
            case RunEnded():
                self.ended = event
            case _:
                pass

    def _take_plan(self, plan: BatchAssembled) -> None:
        self.spec = plan.spec
        self.sequence_free = max(self.sequence_free, plan.sequence + 1)
        self.settled.update(groups_of(plan))
        self._newest = max(self._newest, plan.version)
        if self.keeps(plan):
            self.plans[plan.sequence] = plan

    def _take_skipped(self, event: BatchSkipped) -> None:
        """A batch that is given up was never trained and never will be: its groups are skipped like any others."""
        self.settled.update(event.group_ids)
        self.skipped |= dict.fromkeys(event.group_ids, event.reason)
        self.skip_reasons[word_of(event.reason)] += len(event.group_ids)
        if event.sequence is not None:
            self.given_up.add(event.sequence)
            self.plans.pop(event.sequence, None)  # it names what no weights hold

    def _take_weights(self, event: WeightsPublished) -> None:
        """An export is announced after its version."""
        earlier = self.published.get(event.version)
        self.published[event.version] = PublishedVersion(
            run_id=event.run_id,
            version=event.version,
            model_id=event.model_id,
            sequence=event.sequence,
            digest=event.digest,
            checkpoint_uri=event.checkpoint_uri or (earlier.checkpoint_uri if earlier else None),
            published_us=event.envelope.occurred_at_us,
        )
        self._newest = max(self._newest, event.version)


RunsById = dict[str, Run]


def runs_of(records: Iterable[Record], keeps: Keeps | None = None, before: RunsById | None = None) -> RunsById:
    """Runs by name, continued from earlier ones. If plans, by far the largest records, are
    not needed, each is a sign of life and not decoded; unreadable records are skipped."""
    runs = {} if before is None else before
    for record in records:
        unread = keeps is None and is_plan(record)
        event = None if unread else next(readable([record]), None)
        if unread or isinstance(event, OF_RUNS):
            name = event.run_id if isinstance(event, OF_RUNS) else (record.key or b"").decode(errors="replace")
            run = runs.setdefault(name, Run(name) if keeps is None else Run(name, keeps))
            run.seen_us = max(run.seen_us, record.timestamp_ms * 1000)
            if event is not None:
                run.take(event)
    return runs


def is_plan(record: Record) -> bool:
    """Returns whether a record is a plan, without decoding it."""
    try:
        return record.value is not None and event_name(record.value) == BatchAssembled.__name__
    except UndecodableRecord:
        return False


def trained_us(batch: BatchTrained) -> int:
    """Returns the moment at which the batch was trained, in UTC microseconds."""
    return batch.envelope.occurred_at_us


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
    """call_ids whose responses are read as context and not trained; a member that the spec
    left out has neither kind."""


class RunIndex:
    """By group: the batches that hold it, and the runs that skipped it."""

    def __init__(self) -> None:
        self.runs: RunsById = {}
        self.latest: str | None = None
        """The run with the newest record, whatever partition it is read from; without times, the run that was read last."""
        self._planned: dict[str, dict[tuple[str, int], Planned]] = defaultdict(dict)
        self._skipped: dict[str, dict[str, str]] = defaultdict(dict)

    @classmethod
    def of(cls, records: Iterable[Record]) -> "RunIndex":
        """Returns the index of all that records say."""
        index = cls()
        for record in records:
            for event in readable([record]):
                index.apply(event, record.timestamp_ms * 1000)
        return index

    def apply(self, event: Event, seen_us: int = 0) -> None:
        """One more event, and when it was written, where the reader tells; of other kinds nothing is noted."""
        if not isinstance(event, OF_RUNS):
            return
        run = self.runs.setdefault(event.run_id, Run(event.run_id))
        run.take(event)
        run.seen_us = max(run.seen_us, seen_us)
        if self.latest is None or seen_us >= self.runs[self.latest].seen_us:
            self.latest = event.run_id
        if isinstance(event, BatchAssembled):
            self._assembled(event)
        if isinstance(event, BatchSkipped):
            for group_id in event.group_ids:
                self._skipped[group_id][event.run_id] = event.reason
                if event.sequence is not None:
                    self._planned[group_id].pop((event.run_id, event.sequence), None)

    def _assembled(self, plan: BatchAssembled) -> None:
        for trajectory in plan.trajectories:
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
        trained = self.runs[batch.run_id].trained.get(batch.sequence)
        return None if trained is None else trained.version
