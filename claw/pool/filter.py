"""Filters of `claw pool` as a person types them."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from claw.errors import CannotRun
from datapool.batch.spec import Bounds, first_problem
from datapool.view.query import PoolFilter

BOUND = re.compile(r"(?P<scorer>.+@\d+)(?P<sign>>=|<=)(?P<value>.+)")
SIGNS = {">=": "min", "<=": "max"}


def filter_of(given: Mapping[str, Any]) -> PoolFilter:  # a command's own arguments
    """The filter that a command's options make. Raises CannotRun."""
    names = PoolFilter.__dataclass_fields__.keys() & given.keys() - {"tags", "scores"}
    tags, scores = tuple(given["tag"] or ()), scores_of(given["score"] or ())
    return PoolFilter(**{name: given[name] for name in names}, tags=tags, scores=scores)


def given_scores(texts: Iterable[str]) -> dict[str, float | None]:
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


def scores_of(texts: Iterable[str]) -> dict[str, Bounds]:
    """`entropy@1>=0.3` and `entropy@1<=0.9` as bounds by scorer. Raises CannotRun."""
    ends: dict[str, dict[str, str]] = {}
    for text in texts:
        found = BOUND.fullmatch(text)
        if found is None:
            raise CannotRun(f"--score takes 'SCORER@VERSION>=NUMBER' or <=, in quotes, not {text!r}")
        ends.setdefault(found["scorer"], {})[SIGNS[found["sign"]]] = found["value"]
    try:
        return {scorer: Bounds.model_validate(bounds) for scorer, bounds in ends.items()}
    except ValidationError as error:
        raise CannotRun(f"--score: {first_problem(error)}") from error
