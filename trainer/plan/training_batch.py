"""A plan with the rows that are trained of it."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from claw_r1.datapool.batch.sequences import TrainingRow
from claw_r1.datapool.view.planned_rows import FactSource, Renderer, rows_of
from claw_r1.eventlog.records import Position, Record
from claw_r1.schemas.cloudevents import traceparent_of
from claw_r1.schemas.events import BatchAssembled


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """A plan and its training rows. `read_s`: seconds that reading them took. `skipped`: groups given up while it was waited
    for. `traceparents`: of its calls."""

    plan: BatchAssembled
    rows: list[TrainingRow]
    read_s: float
    skipped: int = 0
    traceparents: tuple[str | None, ...] = ()


def read(plan: BatchAssembled, facts: FactSource, vocabulary: int, render: Renderer | None = None) -> TrainingBatch:
    """The plan with its rows. vocabulary: how many tokens the model has. render: for calls without ids. Raises FactUnreadable."""
    began, remembered = time.monotonic(), Remembered(facts)
    rows = rows_of(plan, remembered, vocabulary, render)
    traceparents = tuple([traceparent_of(record.headers) for record in remembered.records.values()])
    return TrainingBatch(plan, rows, time.monotonic() - began, traceparents=traceparents)


class Remembered:
    """A `FactSource` that keeps its last request."""

    def __init__(self, facts: FactSource) -> None:
        self.records: Mapping[Position, Record] = {}
        self._facts = facts

    def get(self, positions: Iterable[Position]) -> dict[Position, Record]:
        """Every record asked for. Raises HistoryCut."""
        self.records = records = self._facts.get(positions)
        return records
