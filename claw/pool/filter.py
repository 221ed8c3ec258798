"""Filters of `claw pool` as a person types them."""

import re
from collections.abc import Iterable
from dataclasses import asdict

from pydantic import ValidationError

from claw.errors import CannotRun
from claw.pool.options import FilterOptions
from datapool.batch.spec import Bounds, first_problem
from datapool.view.query import PoolFilter

BOUND = re.compile(r"(?P<scorer>.+@\d+)(?P<sign>>=|<=)(?P<value>.+)")
SIGNS = {">=": "min", "<=": "max"}


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
    ends: dict[str, dict[str, str]] = {}
    for text in texts:
        bound = BOUND.fullmatch(text)
        if bound is None:
            raise CannotRun(f"--score takes 'SCORER@VERSION>=NUMBER' or <=, in quotes, not {text!r}")
        ends.setdefault(bound["scorer"], {})[SIGNS[bound["sign"]]] = bound["value"]
    try:
        return {scorer: Bounds.model_validate(bounds) for scorer, bounds in ends.items()}
    except ValidationError as error:
        raise CannotRun(f"--score: {first_problem(error)}") from error
