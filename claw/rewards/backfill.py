"""`claw rewards backfill`: the history scored again, or what that would cost."""

import os
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from claw_r1.claw.answers import Answer
from claw_r1.claw.broker_log import log_for_reading
from claw_r1.claw.data.replay_range import bound
from claw_r1.claw.notice import Progress, notice
from claw_r1.claw.pool.reading import open_pool
from claw_r1.consumers.pool.listing import find
from claw_r1.consumers.rewards.config import ScoredSlot, load, slot_named
from claw_r1.consumers.rewards.rescoring.backfill import (
    BackfillOutcome,
    BackfillRange,
    Holds,
    backfill,
    range_of,
    slot_again,
)
from claw_r1.consumers.rewards.rescoring.forecast import Forecast, forecast
from claw_r1.consumers.rewards.settings import RewardsSettings
from claw_r1.consumers.rewards.subjects.of_rows import topics_of
from claw_r1.datapool.view.listing.pool_filter import PoolFilter
from claw_r1.eventlog.kafka.admin import as_on_broker
from claw_r1.eventlog.kafka.reader import FactLookup
from claw_r1.eventlog.records import Place
from claw_r1.eventlog.settings import LogSettings
from claw_r1.runtime.stop_signals import stop_event

NICE = 10
KINDS = {"call": "steps", "next": "steps", "group": "groups"}
"""Rows of the pool that a filter is asked about, by scope; of the others trajectories."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillRequest:
    """The request that a person typed."""

    slot: str
    generation: int
    config: Path
    start: str
    end: str
    filters: PoolFilter
    tokens_max: int | None
    dry_run: bool


def run_backfill(request: BackfillRequest, *, prefix: str) -> Answer:
    """Exit code 1 when it stopped before the ends. Raises CannotRun, ConsumerError, LogError."""
    limits = RewardsSettings(config=request.config)
    slot = slot_again(slot_named(load(request.config), request.slot), request.generation)
    with log_for_reading(prefix) as settings:
        on_broker = as_on_broker(settings)
        span = _span(on_broker, slot, request)
        holds = _holds(slot, request.filters, prefix)
        if request.dry_run:
            progress = Progress("claw rewards backfill --dry-run: {done} of {total} records")
            cost = forecast(on_broker, slot, limits, span, holds=holds, progress=progress)
            return Answer(asdict(cost) | _names(slot), forecast_text(slot, cost))
        return _score(on_broker, slot, limits, span, holds, request)


def _span(settings: LogSettings, slot: ScoredSlot, request: BackfillRequest) -> BackfillRange:
    topics = topics_of(slot.scorer.scope)
    span = range_of(settings, slot, bound(settings, topics, request.start), bound(settings, topics, request.end))
    if span.began:
        notice(
            f"{slot.group_id(settings.prefix)} goes on where it was ({span.records} records to go), whatever --from says; "
            f"--generation {slot.generation + 1} begins anew"
        )
    return span


def _score(
    settings: LogSettings,
    slot: ScoredSlot,
    limits: RewardsSettings,
    span: BackfillRange,
    holds: Holds,
    request: BackfillRequest,
) -> Answer:
    os.nice(NICE)  # behind live work of this machine, its rules too
    tokens_max, daily = request.tokens_max, slot.options.budget
    if tokens_max is None and daily is not None:
        tokens_max = daily.tokens_per_day
    stop = stop_event()
    begin_s = time.monotonic()
    progress = Progress(f"claw rewards backfill {slot.name}: {{done}} of {{total}} records")
    outcome = backfill(settings, slot, limits, span, stop=stop, holds=holds, tokens_max=tokens_max, progress=progress)
    seconds = time.monotonic() - begin_s
    answer = asdict(outcome) | {"offsets": by_topic(outcome.offsets), "to": by_topic(span.ends)} | _names(slot)
    answer |= {"done": outcome.left == 0, "seconds": round(seconds, 3)}
    return Answer(answer, outcome_text(slot, outcome, seconds), 0 if outcome.left == 0 else 1)


def _holds(slot: ScoredSlot, filters: PoolFilter, prefix: str) -> Holds:
    """Subjects that are of the rows which the filter lets through."""
    if filters == PoolFilter():
        return lambda _: True
    kind = KINDS.get(slot.scorer.scope, "trajectories")
    with open_pool(prefix, group=filters.group) as pool, closing(FactLookup(pool.settings)) as facts:
        rows = pool.view.ask(lambda rows: find(kind, rows, filters, (), None, facts))
    fields = ("group_id", "trajectory_id", "call_id")[: {"groups": 1, "trajectories": 2, "steps": 3}[kind]]
    ids = {tuple(getattr(row, field) for field in fields) for row in rows}
    notice(f"the filter lets {len(ids)} {kind} through")
    return lambda subject: tuple(getattr(subject, field) for field in fields) in ids


def _names(slot: ScoredSlot) -> dict[str, Any]:
    return {"scorer": slot.name, "version": slot.scorer.version, "generation": slot.generation}


def by_topic(offsets: Mapping[Place, int]) -> dict[str, list[int]]:
    """Returns offsets in the form of manifests: topic -> offset by partition."""
    topics = sorted({topic for topic, _ in offsets})
    return {topic: [at for (name, _), at in sorted(offsets.items()) if name == topic] for topic in topics}


def outcome_text(slot: ScoredSlot, outcome: BackfillOutcome, seconds: float) -> str:
    """For a person."""
    name = f"{slot.name}@{slot.scorer.version}, generation {slot.generation}"
    did = (
        f"{name}: {outcome.judged} judged, {outcome.cached} kept before, {outcome.failed} failed, "
        f"{outcome.tokens} tokens in {seconds:.1f} s"
    )
    if outcome.left == 0:
        return did
    why = "the budget is spent" if outcome.budget_spent else "stopped"
    places = ", ".join(f"{topic} {offsets}" for topic, offsets in by_topic(outcome.offsets).items())
    return f"{did}\n{why} at {places}, {outcome.left} records before the end; the same command goes on there"


def forecast_text(slot: ScoredSlot, cost: Forecast) -> str:
    """For a person."""
    price = "" if cost.price is None else f", price {cost.price:.4f}"
    return (
        f"{slot.name}@{slot.scorer.version}, generation {slot.generation}: {cost.subjects} subjects, "
        f"{cost.verdicts} verdicts to be asked for, about {cost.tokens} tokens{price}\n"
        f"per verdict {cost.tokens_per_verdict:g}: {cost.basis}"
    )
