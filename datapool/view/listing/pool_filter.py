"""A filter of the pool, and the condition of each field: `claw pool` makes options of them, HTTP parameters.

A field that is None, or empty, asks nothing. Only the standard library is imported, since commands begin with this.
"""

import math
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, NamedTuple

VERSION_MAX = (1 << 62) - 1
"""Versions are compared in 64 bits."""
TIME_FORMS = {"%Y-%m-%dT%H:%M": 60, "%Y-%m-%dT%H": 3600, "%Y-%m-%d": 86400}
"""Forms of `time`, and the seconds that each spans."""
BOUND = re.compile(r"(?P<scorer>.+@\d+)(?P<sign>>=|<=)(?P<value>.+)")


class ScoreBound(NamedTuple):
    """A bound on the score that a scorer, `name@version`, gave; inclusive."""

    scorer: str
    low: float
    high: float


def score_bound(text: str) -> ScoreBound:
    """`entropy@1>=0.3`, as a person types it. Raises ValueError."""
    bound = BOUND.fullmatch(text)
    try:
        value = math.nan if bound is None else float(bound["value"])
    except ValueError:
        value = math.nan
    if bound is None or math.isnan(value):
        raise ValueError(f"score takes 'SCORER@VERSION>=NUMBER' or <=, in quotes, not {text!r}")
    low, high = (value, math.inf) if bound["sign"] == ">=" else (-math.inf, value)
    return ScoreBound(bound["scorer"], low, high)


def time_span(text: str) -> tuple[float, float]:
    """Begin and end of a day, an hour or a minute, in microseconds of UTC. Raises ValueError."""
    for form, seconds in TIME_FORMS.items():
        with suppress(ValueError):
            begin_us = datetime.strptime(text, form).replace(tzinfo=UTC).timestamp() * 1e6
            return begin_us, begin_us + seconds * 1e6
    raise ValueError(f"time takes 2026-11-29, 2026-11-29T14 or 2026-11-29T14:05, in UTC, not {text!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFilter:
    """The requested rows; bounds are inclusive. Raises ValueError for an invalid bound, or
    one that nothing meets."""

    channel: Annotated[str | None, "Only this channel, for example train or val."] = None
    group: Annotated[str | None, "Only this group."] = None
    trajectory: Annotated[str | None, "Only this trajectory."] = None
    agent: Annotated[str | None, "Only this agent."] = None
    run: Annotated[str | None, "Only what belongs to this run."] = None
    task: Annotated[str | None, "Only this task, as JSON; what is the same in its first 200 characters is one."] = None
    status: Annotated[
        str | None,
        "Trajectories that are open, completed, failed, abandoned or evicted, groups with such a member; completed or aborted steps.",
    ] = None
    reason: Annotated[str | None, "What is not ready, or not trainable, for this reason, in its word."] = None
    finish: Annotated[
        str | None,
        "Steps whose reply ended so: stop, length, …; trajectories whose last one did, groups with such a member.",
    ] = None
    time: Annotated[
        str | None,
        "Only what changed (steps: came in) in this day, hour or minute of UTC: 2026-11-29, 2026-11-29T14 or 2026-11-29T14:05.",
    ] = None
    tag: Annotated[
        tuple[str, ...],
        "Only what carries this tag: its own, one by curation, or one of its trajectory or group; may be repeated.",
    ] = ()
    ready: Annotated[
        bool | None, "Only trajectories or groups that are (not) ready for training, and steps of such trajectories."
    ] = None
    trainable: Annotated[
        bool | None, "Steps that may (not) be trained on; trajectories and groups with such a step."
    ] = None
    quality_min: Annotated[float | None, "Lowest quality of a step; trajectories and groups with such a step."] = None
    quality_max: Annotated[float | None, "Highest quality of a step; trajectories and groups with such a step."] = None
    score: Annotated[
        tuple[str, ...],
        "Bound on one scorer's score of a step: 'entropy@1>=0.3' or <=, quoted; may be repeated.",
    ] = ()
    reward_min: Annotated[
        float | None, "Lowest reward of a step, return of a trajectory or mean return of a group."
    ] = None
    reward_max: Annotated[
        float | None, "Highest reward of a step, return of a trajectory or mean return of a group."
    ] = None
    version_min: Annotated[int | None, "At least one token was sampled by this version or a later one."] = None
    version_max: Annotated[int | None, "At least one token was sampled by this version or an earlier one."] = None
    text: Annotated[
        str | None, "Text in ids, tags, tasks or notes; `claw pool` seeks it in requests and replies of steps, too."
    ] = None

    def __post_init__(self) -> None:
        bounds = [score_bound(text) for text in self.score]
        for bound in bounds:
            high = min(other.high for other in bounds if other.scorer == bound.scorer)
            if bound.low > high:
                raise ValueError(
                    f"score takes bounds that meet: {bound.scorer} is never >= {bound.low:g} and <= {high:g}"
                )
        if self.time is not None:
            time_span(self.time)
        for name in ("version_min", "version_max"):
            if abs(getattr(self, name) or 0) > VERSION_MAX:
                raise ValueError(f"{name} is a version of a policy, at most {VERSION_MAX}")

    @property
    def asks_steps(self) -> bool:
        """Steps decide which trajectories and groups meet it."""
        judged = (self.trainable, self.finish, self.quality_min, self.quality_max)
        return bool(self.tag or self.score) or any(value is not None for value in judged)


EVERYTHING = PoolFilter()
