"""`/api/v1/rewards`: scorers' rewards and agreement, evidence of verdicts, trials of
scorers. Nothing is written."""

import math
from itertools import combinations
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from msgspec import to_builtins
from pydantic import BaseModel, ConfigDict, Field

from claw_r1.consumers.dashboard.rewards.trial import trial_slots, tried
from claw_r1.consumers.dashboard.routes.parameters import Limit, Source
from claw_r1.consumers.dashboard.routes.parts.record import stored_record
from claw_r1.consumers.dashboard.settings import DashboardSettings
from claw_r1.consumers.errors import ConsumerError
from claw_r1.consumers.rewards.measures.figures import RewardState, scorers, words_within
from claw_r1.consumers.rewards.measures.ratings import Rating
from claw_r1.consumers.web.problems import PageProblem, SafeJson
from claw_r1.consumers.web.sessions import Operating, Watching
from claw_r1.datapool.feedback import HUMAN
from claw_r1.schemas.events import VerdictKept
from claw_r1.schemas.json_values import JsonDict

FRESH_S = 5.0
PAIRS_MAX = 30
"""Pairs of raters whose agreement is worked out for one answer."""
RESAMPLES = 200
"""For the intervals of one pair: a fifth of what `claw rewards agree` draws."""
TRIED_MAX = 20
routes = APIRouter(prefix="/api/v1/rewards", tags=["rewards"])
Pattern = Annotated[str | None, Query(max_length=512)]


class TrialBody(BaseModel):
    """POST /rewards/trial"""

    model_config = ConfigDict(extra="forbid", frozen=True)

    slot: str = Field(max_length=512)
    places: tuple[tuple[str, str], ...] = Field(min_length=1, max_length=TRIED_MAX)
    """[group, trajectory] of each."""


@routes.get("", summary="Each version of each slot: histogram, trend, failures by word, cost and latency.")
def rewards(source: Source, request: Request, _: Watching) -> Response:
    """`tries`: slots of `--rewards` that can be tried. Of a slot the last word on each subject counts."""
    settings: DashboardSettings = request.app.state.settings

    def answer() -> JsonDict:
        rows, caught_up = source.rewards.ask(scorers)
        return {"scorers": rows, "caught_up": caught_up}

    kept = source.kept.answer("rewards", answer, FRESH_S)
    return SafeJson(kept | {"tries": trial_slots(settings.rewards)})


@routes.get("/agreement", summary="How far raters agree: each two of one name, people as one; or two in full.")
def agreement(source: Source, _: Watching, left: Pattern = None, right: Pattern = None) -> Response:
    """Without `left`: the figures of the first 30 pairs. `lines`: as `claw rewards agree` says it; with `left` its intervals, too."""

    def answer() -> JsonDict:
        if left is not None:
            return _report(source.rewards.ask(lambda state: _sides(state, left, right))[0], (left, right or left))
        sides, _caught_up = source.rewards.ask(lambda state: [(pair, _sides(state, *pair)) for pair in _pairs(state)])
        return {"pairs": [_report(ratings, pair, resamples=0) for pair, ratings in sides]}

    return SafeJson(source.kept.answer(("rewards/agreement", left, right), answer, FRESH_S))


@routes.get("/said", summary="The newest words of a scorer between two values, or of those that failed so.")
def words(
    source: Source,
    _: Watching,
    slot: Annotated[str, Query(max_length=512)],
    version: int | None = None,
    low: float = -math.inf,
    high: float = math.inf,
    failed: Annotated[str | None, Query(max_length=200)] = None,
    limit: Limit = 50,
) -> Response:
    """A row has its subject and the id of its verdict."""
    scorer = slot, version
    rows, total = source.rewards.ask(lambda state: words_within(state, scorer, low, high, failed, limit))[0]
    return SafeJson({"words": rows, "total": total})


@routes.get("/verdict", summary="A verdict with its evidence: the judge's reasons, its own calls, what it cost.")
def verdict(source: Source, _: Watching, id: Annotated[str, Query(max_length=200)]) -> Response:  # noqa: A002  # a query's name
    """The record as it stands on claw.rewards.verdicts."""
    place = source.rewards.ask(lambda state: state.places.get(id))[0]
    if place is None:
        raise PageProblem(404, f"the log has no verdict {id}: scorers that keep none have no evidence")
    event = stored_record(source, place).event()
    if not isinstance(event, VerdictKept):
        raise PageProblem(404, f"what stands at {place} is no verdict")
    return SafeJson(to_builtins(event))


@routes.post("/trial", summary="A scorer of --rewards tried on trajectories, as `claw rewards test` does it.")
def trial(source: Source, request: Request, _: Operating, body: TrialBody) -> Response:
    """Nothing is kept and nothing is published; what a judge costs, it costs."""
    settings: DashboardSettings = request.app.state.settings
    try:
        return SafeJson({"trials": tried(source, settings.rewards, body.slot, body.places)})
    except ConsumerError as error:
        raise PageProblem(422, str(error)) from error


def _pairs(state: RewardState) -> list[tuple[str, str]]:
    """Scorers of one name, with each other and with all people."""
    raters = sorted({word.rating.rater for word in state.standings.words()})
    names = sorted({rater.rpartition("/")[2] for rater in raters})
    sides = {
        name: [rater for rater in raters if rater.endswith(f"/{name}") and not rater.startswith(HUMAN)]
        for name in names
    }
    for name, own in sides.items():
        if any(rater.startswith(HUMAN) and rater.endswith(f"/{name}") for rater in raters):
            own.append(f"{HUMAN}*/{name}")
    return [pair for own in sides.values() for pair in combinations(own, 2)][:PAIRS_MAX]


def _sides(state: RewardState, left: str, right: str | None) -> tuple[list[Rating], list[Rating] | None]:
    return state.standings.ratings(left), None if right is None else state.standings.ratings(right)


def _report(
    sides: tuple[list[Rating], list[Rating] | None], names: tuple[str, str], resamples: int = RESAMPLES
) -> JsonDict:
    from claw_r1.consumers.rewards.measures.agreement import agreement as measured  # it loads what does the sums
    from claw_r1.consumers.rewards.measures.report import as_text

    report = measured(*sides, names=names, resamples=resamples)
    return {"left": names[0], "right": names[1], "figures": to_builtins(report.figures), "lines": list(as_text(report))}
