"""The values that scorers gave the rows of one kind, by scorer and number of the row."""

import math
from collections.abc import Iterable, Mapping

from msgspec import Struct

from claw_r1.datapool.feedback import HUMAN
from claw_r1.datapool.view.records import PooledRow
from claw_r1.datapool.view.store import packed, unpacked
from claw_r1.schemas.events import StepRecord, TrajectoryRecord

ScorerName = str | tuple[str, ...]
"""A scorer of steps is name@version, one of trajectories the source and the name of a reward."""


class ScoresSnapshot(Struct, array_like=True):
    """The values of one scorer. Text as bytes, since it may not be Unicode."""

    scorer: bytes | list[bytes]
    scores: dict[int, float]


class RowScores:
    """A row's scores are put and dropped as a whole. Not thread-safe."""

    def __init__(self) -> None:
        self._by_scorer: dict[ScorerName, dict[int, float]] = {}

    def put(self, number: int, scores: Mapping[ScorerName, float], *, is_new: bool) -> None:
        """The row has these scores, and no longer those that it had. is_new: it had none."""
        for of_scorer in () if is_new else self._by_scorer.values():
            of_scorer.pop(number, None)
        for scorer, score in scores.items():
            self._by_scorer.setdefault(scorer, {})[number] = score

    def of(self, scorer: ScorerName) -> Mapping[int, float]:
        """Returns the values that a scorer gave, by number."""
        return self._by_scorer.get(scorer, {})

    def of_each(self) -> Iterable[Mapping[int, float]]:
        """Returns the same for every scorer."""
        return self._by_scorer.values()

    def snapshot(self) -> list[ScoresSnapshot]:
        """Returns what `restore` takes."""
        return [ScoresSnapshot(packed(name), scores) for name, scores in self._by_scorer.items()]

    def restore(self, snapshots: Iterable[ScoresSnapshot]) -> None:
        """Take the place of these scores, which are none."""
        self._by_scorer = {unpacked(each.scorer): each.scores for each in snapshots}


def scores_of(record: PooledRow) -> dict[ScorerName, float]:
    """The values that scorers gave a step, and the finite ones that they gave a trajectory as a whole."""
    if isinstance(record, StepRecord):
        scores = record.curation.scores if record.curation else {}
        return {scorer: score for scorer, score in scores.items() if score is not None}
    slots = record.rewards if isinstance(record, TrajectoryRecord) else ()
    return {
        (slot.source, slot.name): slot.value
        for slot in slots
        if slot.step_index is None and not slot.source.startswith(HUMAN)
        if slot.value is not None and math.isfinite(slot.value)
    }
