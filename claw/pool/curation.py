"""`claw pool curate`: a person's judgement of steps, published as StepCurated on claw.rewards, and its undoing.

A filter is resolved to ids here, before anything is published, so that the event names its steps,
whatever the pool becomes. One curation is one correlation id over all its events: `--undo` takes either.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

import orjson

from claw.errors import CannotRun
from claw.pool.acts import act_envelope, append
from claw.pool.listing import find_steps
from claw.pool.reading import open_pool
from claw.show.log import log_for_reading
from claw.show.rendering import as_plain
from datapool.errors import UnusableFact
from datapool.fold.curation import undoing
from datapool.fold.validation import usable
from datapool.view.query import PoolFilter
from datapool.view.rows import PoolRows, as_step
from datapool.view.store import as_bytes
from eventlog.kafka.reader import FactLookup, read_topics
from eventlog.records import readable
from eventlog.settings import LogSettings
from schemas.envelopes import new_id, now_us
from schemas.events import StepCurated, StepRecord
from schemas.topics import REWARDS

PRODUCER = "claw pool curate"


@dataclass(frozen=True, slots=True, kw_only=True)
class CurationRequest:
    """A person's judgement of steps; None leaves what was judged before."""

    trainable: bool | None = None
    quality: float | None = None
    scores: Mapping[str, float | None] = field(default_factory=dict)
    tags: tuple[str, ...] | None = None
    note: str | None = None


def run_curation(
    ids: Sequence[str],
    filters: PoolFilter,
    judgement: CurationRequest,
    *,
    who: str | None,
    dry_run: bool,
    prefix: str,
    as_json: bool,
) -> int:
    """Judges the steps of the ids that meet the filter; exit code 1 when there is none. Raises CannotRun."""
    who = _checked(ids, filters, judgement, who)
    with open_pool(prefix) as pool, closing(FactLookup(pool.settings)) as facts:
        steps = pool.view.ask(lambda rows: resolve(rows, ids, filters, facts))
        curation_id, revision = new_id(), now_us()
        events = [_event(step, judgement, who, revision, curation_id) for step in steps]
        _refuse_unusable(events)
        return _publish(pool.settings, events, curation_id, dry_run=dry_run, as_json=as_json)


def check_alone(ids: Sequence[str], filters: PoolFilter, judgement: CurationRequest) -> None:
    """An undo concerns the steps of what is undone, and no others: what would narrow or change it is refused. Raises CannotRun."""
    beside = {"ids": bool(ids), "filters": filters != PoolFilter(), "a judgement": judgement != CurationRequest()}
    if contradictions := [name for name, present in beside.items() if present]:
        raise CannotRun(
            f"--undo takes back a whole curation, or one event of it: {' and '.join(contradictions)} cannot stand beside it"
        )


def run_undo(undone: str, *, who: str | None, dry_run: bool, prefix: str, as_json: bool) -> int:
    """Takes a curation or one event back; exit code 1 when nothing of it stands any more. Raises CannotRun."""
    if not who:
        raise CannotRun("who judges? --who NAME")
    with log_for_reading(prefix) as settings:
        history = [event for event in readable(read_topics(settings, [REWARDS])) if isinstance(event, StepCurated)]
        curation_id = new_id()
        events = undoing(
            history,
            lambda fact: undone in (fact.envelope.event_id, fact.envelope.correlation_id),
            who=who,
            revision=now_us(),
            make_envelope=partial(act_envelope, PRODUCER, curation_id, cause=undone),
        )
        return _publish(settings, events, curation_id, dry_run=dry_run, as_json=as_json)


def resolve(rows: PoolRows, ids: Sequence[str], filters: PoolFilter, facts: FactLookup) -> list[StepRecord]:
    """Steps that are, or belong to, one of the ids (no ids: all) and meet the filter, in order."""
    if not ids:
        return find_steps(rows, filters, (), None, facts)
    named: dict[tuple[str, str, str], StepRecord] = {}
    for name in ids:
        for place, value in rows.store.select("? IN (g, t, c)", [as_bytes(name)], None, None):
            named[place] = as_step(value)
    matches = find_steps(rows, filters, (), None, facts) if filters != PoolFilter() else list(named.values())
    places = {(step.group_id, step.trajectory_id, step.call_id) for step in matches}
    return [named[place] for place in sorted(named) if place in places]


def _checked(ids: Sequence[str], filters: PoolFilter, judgement: CurationRequest, who: str | None) -> str:
    if judgement == CurationRequest():
        raise CannotRun(
            "nothing is judged: say --train or --no-train, --quality, --set-score, --set-tag or --why (or --undo ID)"
        )
    if not ids and filters == PoolFilter():
        raise CannotRun("which steps? name ids, or a filter such as --channel")
    if not who:
        raise CannotRun("who judges? --who NAME")
    if who.startswith("scorer/"):
        raise CannotRun("scorer/… is how scorers sign; a person has another name")
    return who


def _event(step: StepRecord, judgement: CurationRequest, who: str, revision: int, curation_id: str) -> StepCurated:
    return StepCurated(
        envelope=act_envelope(PRODUCER, curation_id),
        group_id=step.group_id,
        trajectory_id=step.trajectory_id,
        call_id=step.call_id,
        trainable=judgement.trainable,
        quality=judgement.quality,
        scores=judgement.scores,
        tags=judgement.tags,
        note=judgement.note,
        who=who,
        revision=revision,
    )


def _refuse_unusable(events: Sequence[StepCurated]) -> None:
    try:
        for event in events:
            usable(event)
    except UnusableFact as error:
        raise CannotRun(str(error)) from error


def _publish(
    settings: LogSettings, events: Sequence[StepCurated], curation_id: str, *, dry_run: bool, as_json: bool
) -> int:
    """All or an error: publishing again after one is safe, the later judgement counts."""
    if not dry_run:
        append(settings, REWARDS, events)
    if as_json:
        summary = {"curation_id": curation_id, "steps": len(events), "dry_run": dry_run}
        print(orjson.dumps({**summary, "events": [as_plain(event) for event in events]}).decode())
    else:
        for event in events:
            print(f"{event.group_id}/{event.trajectory_id}/{event.call_id}")
        verb = "would be judged" if dry_run else f"judged; take it back with --undo {curation_id}"
        print(f"{len(events)} steps {verb}" if events else "no step is concerned")
    return 0 if events else 1
