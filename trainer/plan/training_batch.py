"""A plan with the rows that are trained of it."""

import time
from dataclasses import dataclass

from claw_r1.datapool.batch.sequences import TrainingRow
from claw_r1.datapool.view.planned_rows import FactSource, Renderer, rows_of
from claw_r1.schemas.events import BatchAssembled


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """A plan and its training rows. `read_s`: seconds that reading them took. `skipped`: groups given up while it was waited
    for."""

    plan: BatchAssembled
    rows: list[TrainingRow]
    read_s: float
    skipped: int = 0


def read(plan: BatchAssembled, facts: FactSource, vocabulary: int, render: Renderer | None = None) -> TrainingBatch:
    """The plan with its rows. vocabulary: how many tokens the model has. render: for calls without ids. Raises FactUnreadable."""
    began = time.monotonic()
    return TrainingBatch(plan, rows_of(plan, facts, vocabulary, render), time.monotonic() - began)
