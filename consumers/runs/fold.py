"""The events of training runs folded into one object per run. No log and no clock: the moment of a question is an argument."""

import itertools
import re
import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from claw_r1.schemas.events import (
    BatchSkipped,
    BatchTrained,
    Event,
    RunEnded,
    RunStarted,
    VersionEvaluated,
    WeightsPublished,
)

RunStatus = Literal["running", "stopped", "ended"]
QUIET_S_MIN = 120.0
QUIET_BATCHES = 10
"""A run that wrote nothing for so long, or for so many times its usual gap between batches, is taken for stopped."""
NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class TrainedBatch:
    """One batch of a run. `at_us`: UTC microseconds of its `BatchTrained`."""

    sequence: int
    version: int
    at_us: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class KeptVersion:
    """A published version. `export`: HF-format directory with exactly its weights, where one was written."""

    version: int
    digest: str
    export: str | None


@dataclass(slots=True)
class ObservedRun:
    """One run as far as the log has it."""

    run_id: str
    model_id: str = ""
    incarnations: int = 0
    config: dict[str, Any] = field(default_factory=dict)
    """Settings of the newest incarnation: JSON, hence Any."""
    started_us: int = 0
    seen_us: int = 0
    """The time of the run's newest record, of whatever type; UTC microseconds."""
    trained: dict[int, TrainedBatch] = field(default_factory=dict)
    """By sequence."""
    given_up: set[int] = field(default_factory=set)
    """Sequences of plans that could not be read any more."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Groups by the first words of why they are never trained, numbers in them aside."""
    versions: dict[int, KeptVersion] = field(default_factory=dict)
    evaluations: dict[int, VersionEvaluated] = field(default_factory=dict)
    """By version; the last word on each."""
    ended: RunEnded | None = None
    """Its end, unless it was started again behind it."""

    @property
    def batches(self) -> list[TrainedBatch]:
        """In order of their sequence."""
        return [self.trained[sequence] for sequence in sorted(self.trained)]

    @property
    def version(self) -> int | None:
        """The newest version that is known to exist."""
        numbers = [batch.version for batch in self.trained.values()] + list(self.versions)
        return max(numbers, default=0 if self.incarnations else None)

    @property
    def best(self) -> VersionEvaluated | None:
        """The evaluation of the best version, the last one that was called so."""
        return next(
            (self.evaluations[v] for v in sorted(self.evaluations, reverse=True) if self.evaluations[v].best), None
        )

    def series(self, metric: str) -> list[tuple[int, float]]:
        """(sequence, value) of each batch that has this metric."""
        return [(batch.sequence, batch.metrics[metric]) for batch in self.batches if metric in batch.metrics]

    def state(self, now_us: int) -> RunStatus:
        """ended: it says so. Else running, unless it was quiet for longer than it ever should be: a trainer says nothing
        when it stops."""
        if self.ended is not None:
            return "ended"
        times = [batch.at_us for batch in self.batches]
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        quiet_us = max(QUIET_S_MIN * 1e6, QUIET_BATCHES * statistics.median(gaps or [0]))
        return "running" if now_us - self.seen_us <= quiet_us else "stopped"

    def take(self, event: Event) -> None:
        """One more event of this run, in the order of the log; a later one of the same batch or version replaces the earlier."""
        match event:
            case RunStarted():
                self.incarnations, self.ended = self.incarnations + 1, None
                self.model_id, self.config = event.model_id, _json(event.config)
                self.started_us = self.started_us or event.envelope.occurred_at_us
            case BatchTrained():
                self.trained[event.sequence] = TrainedBatch(
                    event.sequence, event.version, event.envelope.occurred_at_us, event.metrics
                )
            case BatchSkipped():
                self.skipped[NUMBER.sub("N", event.reason.partition(":")[0])] += len(event.group_ids)
                if event.sequence is not None:
                    self.given_up.add(event.sequence)
            case VersionEvaluated():
                self.evaluations[event.version] = event
            case WeightsPublished():
                earlier = self.versions.get(event.version)
                export = event.checkpoint_uri or (earlier.export if earlier else None)
                self.versions[event.version] = KeptVersion(event.version, event.digest, export)
            case RunEnded():
                self.ended = event
            case _:
                pass  # plans: what came of them is in the events above


def _json(text: str) -> dict[str, Any]:
    """A configuration; empty where it is no JSON object: another program may have written the run."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}
