"""The history of all trainers' runs, as far as a question needs it.

Memory: one small entry per batch and version, and the plans that `selects` takes.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from claw_r1.eventlog.kafka.reader import read_topics
from claw_r1.eventlog.records import readable
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.events import BatchAssembled, BatchSkipped, BatchTrained, Event, WeightsPublished
from claw_r1.schemas.topics import BATCHES, WEIGHTS

Selects = Callable[[BatchAssembled], bool]


@dataclass(frozen=True, slots=True)
class TracedVersion:
    """A published version without its tensors. `sequence`: the last batch in these weights; None: initial weights."""

    run_id: str
    version: int
    model_id: str
    sequence: int | None
    digest: str
    checkpoint_uri: str | None
    published_us: int


@dataclass(slots=True)
class TracedRun:
    """One run: the plans that the question selects, the version that each batch made, what was published, what was skipped."""

    plans: dict[int, BatchAssembled] = field(default_factory=dict)
    trained: dict[int, int] = field(default_factory=dict)
    """Batch sequence -> the version that its step made."""
    published: dict[int, TracedVersion] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    """Group -> why this run will never train it."""

    def versions_with(self, sequence: int) -> list[int]:
        """Published versions whose weights went through this batch, ascending."""
        through = (v for v in self.published.values() if v.sequence is not None and v.sequence >= sequence)
        return sorted(version.version for version in through)


TracedRuns = dict[str, TracedRun]


def published(settings: LogSettings) -> TracedRuns:
    """Every run that published weights. Raises BrokerUnreachable, TopicMissing."""
    runs: TracedRuns = {}
    take(runs, readable(read_topics(settings, [WEIGHTS])), lambda _: False)
    return runs


def read(settings: LogSettings, selects: Selects) -> TracedRuns:
    """Every run, with the plans that `selects` takes. Raises BrokerUnreachable, TopicMissing."""
    runs = published(settings)
    take(runs, readable(read_topics(settings, [BATCHES])), selects)
    return runs


def take(runs: TracedRuns, events: Iterable[Event], selects: Selects) -> None:
    """More events, of batches and weights, in the order of their topic."""
    for event in events:
        match event:
            case WeightsPublished():
                _run(runs, event.run_id).published[event.version] = _version(event)
            case BatchAssembled() if selects(event):
                _run(runs, event.run_id).plans[event.sequence] = event
            case BatchTrained():
                _run(runs, event.run_id).trained[event.sequence] = event.version
            case BatchSkipped():
                run = _run(runs, event.run_id)
                run.skipped |= dict.fromkeys(event.group_ids, event.reason)
                if event.sequence is not None:
                    run.plans.pop(event.sequence, None)  # given up: it names what no weights hold
            case _:
                pass  # runs that start and end, plans that the question does not select


def _run(runs: TracedRuns, run_id: str) -> TracedRun:
    return runs.setdefault(run_id, TracedRun())


def _version(event: WeightsPublished) -> TracedVersion:
    return TracedVersion(
        run_id=event.run_id,
        version=event.version,
        model_id=event.model_id,
        sequence=event.sequence,
        digest=event.digest,
        checkpoint_uri=event.checkpoint_uri,
        published_us=event.envelope.occurred_at_us,
    )
