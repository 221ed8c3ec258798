"""Filters of `claw pool` as a person types them."""

from collections.abc import Iterable
from dataclasses import asdict

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.pool.options import FilterOptions
from claw_r1.datapool.batch.spec import Bounds
from claw_r1.datapool.view.query import PoolFilter, score_bounds


def filter_of(options: FilterOptions, *, ready: bool | None = None) -> PoolFilter:
    """The filter that a command's options make. Raises CannotRun."""
    fields = asdict(options)
    tags, scores = fields.pop("tag") or (), fields.pop("score") or ()
    return PoolFilter(**fields, ready=ready, tags=tuple(tags), scores=bounds_of(scores))


def scores_of(texts: Iterable[str]) -> dict[str, float | None]:
    """`entropy@1=0.9` as a score by scorer. Raises CannotRun."""
    scores: dict[str, float | None] = {}
    for text in texts:
        scorer, _, value = text.rpartition("=")
        try:
            scores[scorer] = float(value)
        except ValueError:
            scorer = ""
        if "@" not in scorer:
            raise CannotRun(f"--set-score takes SCORER@VERSION=NUMBER, not {text!r}")
    return scores


def bounds_of(texts: Iterable[str]) -> dict[str, Bounds]:
    """`entropy@1>=0.3` and `entropy@1<=0.9` as bounds by scorer. Raises CannotRun."""
    try:
        return score_bounds(texts)
    except ValueError as error:
        raise CannotRun(f"--score: {error}") from error
