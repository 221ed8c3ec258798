"""A person's judgement of steps, as StepCurated on claw.rewards, and its undoing.

A filter is resolved to ids here, before anything is published, so that the event names its steps,
whatever the pool becomes. One curation is one correlation id over all its events: an undo takes either.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from claw_r1.consumers.pool.acts import act_envelope
from claw_r1.consumers.pool.errors import PoolRefusal
from claw_r1.consumers.pool.listing import find_steps_and_speech
from claw_r1.datapool.errors import UnusableFact
from claw_r1.datapool.fold.curation import REVISION_MAX, undoing
from claw_r1.datapool.fold.validation import usable
from claw_r1.datapool.view.listing.pool_filter import PoolFilter
from claw_r1.datapool.view.rows import PoolRows, as_step
from claw_r1.datapool.view.store import RowIds
from claw_r1.eventlog.protocols import Lookup
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.events import Envelope, Event, StepCurated, StepRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class CurationRequest:
    """A person's judgement of steps; None leaves what was judged before."""

    trainable: bool | None = None
    quality: float | None = None
    scores: Mapping[str, float | None] = field(default_factory=dict)
    tags: tuple[str, ...] | None = None
    note: str | None = None


def check_curator(who: str) -> None:
    """Raises PoolRefusal for a name of no person."""
    if who.startswith("scorer/"):
        raise PoolRefusal("scorer/… is how scorers sign; a person has another name")


def curations(
    steps: Sequence[StepRecord], judgement: CurationRequest, *, who: str, producer: str, act_id: str
) -> list[StepCurated]:
    """The events of one curation, in order of the steps. Each counts before the judgements that its step has. Raises
    PoolRefusal for what no fold would take."""
    check_curator(who)
    at_us = now_us()
    events = [_event(step, judgement, who, _revision(step, at_us), act_envelope(producer, act_id)) for step in steps]
    try:
        for event in events:
            usable(event)
    except UnusableFact as error:
        raise PoolRefusal(str(error)) from error
    return events


def curations_undone(
    history: Iterable[Event], undone: str, *, who: str, producer: str, act_id: str
) -> list[StepCurated]:
    """The events that take back a curation, or one event of it; none where nothing of it stands any more."""
    return undoing(
        [event for event in history if isinstance(event, StepCurated)],
        lambda fact: undone in (fact.envelope.event_id, fact.envelope.correlation_id),
        who=who,
        revision=now_us(),
        make_envelope=partial(act_envelope, producer, act_id, cause=undone),
    )


def resolve(rows: PoolRows, ids: Sequence[str], filters: PoolFilter, facts: Lookup) -> list[StepRecord]:
    """Steps that are, or belong to, one of the ids (no ids: all) and meet the filter, in order. Raises as `steps_named`."""
    if not ids:
        return find_steps_and_speech(rows, filters, (), None, facts)
    named = steps_named(rows, ids, filters.group)
    if filters == PoolFilter():
        return [as_step(named[place]) for place in sorted(named)]
    matches = find_steps_and_speech(rows, filters, (), None, facts)
    return [step for step in matches if (step.group_id, step.trajectory_id, step.call_id) in named]


def steps_named(rows: PoolRows, ids: Sequence[str], group: str | None) -> dict[RowIds, bytes]:
    """Step rows that are, or belong to, one of the ids; group: only in this one.

    Raises PoolRefusal for an id that several groups have: trajectory ids repeat, but a caller means one.
    """
    named = dict(rows.store.named(ids, group=group))
    groups_by_id: dict[str, set[str]] = {name: set() for name in ids}
    for place in named:
        for name in groups_by_id.keys() & set(place):
            groups_by_id[name].add(place[0])
    for name, groups in groups_by_id.items():
        if len(groups) > 1:
            raise PoolRefusal(f"{name} is in {len(groups)} groups, one of them {min(groups)}: say which, --group ID")
    return named


def _revision(step: StepRecord, at_us: int) -> int:
    """The time, or more where a judgement of the step was made under a clock that was ahead."""
    before = step.curation.judgements if step.curation is not None else ()
    return min(max([at_us, *(1 + judgement.revision for judgement in before)]), REVISION_MAX)


def _event(step: StepRecord, judgement: CurationRequest, who: str, revision: int, own: Envelope) -> StepCurated:
    return StepCurated(
        envelope=own,
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
