"""Judgements of a step: which of them count, who outranks whom, and how one is taken back.

Invariant: a curation is a function of the set of judgements. One that is taken back has no effect at all, whatever was
judged or taken back before and after it: what counts is as if it had never been given. Nothing is deleted; the record
keeps every judgement, and who took which back. A person outranks every scorer, whenever either spoke: a person's revision
is the time in microseconds, so the later word wins among people; a scorer's is the generation that its operator gave it,
far below. Of equal revisions the later word wins.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable

from datapool.fold import bounds
from datapool.fold.merge import Rank, content
from schemas.events import Curation, Envelope, Judgement, StepCurated

SCORER_REVISION_MAX = (1 << 40) - 1
"""Below every person's: 2^40 microseconds after 1970 was a January."""


def judged(now: Curation | None, fact: StepCurated) -> Curation:
    """The curation after one more judgement; of two with one event id the higher version or content is kept."""
    said = Judgement(
        event_id=fact.envelope.event_id,
        occurred_at_us=fact.envelope.occurred_at_us,
        revision=fact.revision,
        who=fact.who,
        trainable=fact.trainable,
        quality=fact.quality,
        tags=fact.tags,
        note=fact.note,
        undoes=fact.undoes,
        scores=dict(sorted(fact.scores.items())),
    )
    known = {one.event_id: one for one in now.judgements} if now is not None else {}
    known[said.event_id] = max(known.get(said.event_id, said), said, key=_content)
    return _curation(sorted(known.values(), key=_version)[-bounds.JUDGEMENTS_MAX :])


def counting(judgements: Iterable[Judgement]) -> list[Judgement]:
    """Those that nobody took back, the highest first.

    From the highest down, so that each is reached after all that may take it back: circles need no rule of their own.
    """
    taken_back: set[str] = set()
    kept: list[Judgement] = []
    for one in sorted(judgements, key=_version, reverse=True):
        if one.event_id not in taken_back:
            kept.append(one)
            taken_back.update(one.undoes)
    return kept


def _curation(judgements: list[Judgement]) -> Curation:
    """judgements: sorted."""
    said = [one for one in counting(judgements) if _says_something(one)]
    # The highest comes last, so that of each scorer its word stands.
    scores = {scorer: score for one in reversed(said) for scorer, score in one.scores.items()}
    return Curation(
        trainable=next((one.trainable for one in said if one.trainable is not None), None),
        quality=next((one.quality for one in said if one.quality is not None), None),
        tags=next((one.tags for one in said if one.tags is not None), ()),
        note=next((one.note for one in said if one.note is not None), None),
        who=said[0].who if said else "",
        judgements=tuple(judgements),
        scores=dict(sorted(scores.items())),
    )


def _says_something(one: Judgement) -> bool:
    return bool(one.scores) or (one.trainable, one.quality, one.tags, one.note) != (None,) * 4


def _version(one: Judgement) -> tuple[int, int, str]:
    return one.revision, one.occurred_at_us, one.event_id


def _content(one: Judgement) -> Rank:
    scores = tuple((scorer, content(score)) for scorer, score in one.scores.items())
    return *_version(one), *content(one.who, one.trainable, one.quality, one.tags, one.note, one.undoes, scores)


def undoing(
    history: Iterable[StepCurated],
    is_undone: Callable[[StepCurated], bool],
    *,
    who: str,
    revision: int,
    make_envelope: Callable[[], Envelope],
) -> list[StepCurated]:
    """What takes the undone judgements back, one event per step; none for a step where none of them counts any more.

    revision: at least; a judgement is taken back only by one above it, whatever the clocks said.
    """
    by_step: dict[tuple[str, str, str], list[StepCurated]] = defaultdict(list)
    for fact in history:
        by_step[fact.group_id, fact.trajectory_id, fact.call_id].append(fact)
    made: list[StepCurated] = []
    for (group_id, trajectory_id, call_id), facts in sorted(by_step.items()):
        meant = {fact.envelope.event_id for fact in facts if is_undone(fact)}
        undone = [one for one in counting(_judgements(facts)) if one.event_id in meant]
        if undone:
            made.append(
                StepCurated(
                    envelope=make_envelope(),
                    group_id=group_id,
                    trajectory_id=trajectory_id,
                    call_id=call_id,
                    who=who,
                    revision=max(revision, 1 + max(one.revision for one in undone)),
                    undoes=tuple(sorted(one.event_id for one in undone)),
                )
            )
    return made


def _judgements(facts: Iterable[StepCurated]) -> tuple[Judgement, ...]:
    curation: Curation | None = None
    for fact in facts:
        curation = judged(curation, fact)
    return curation.judgements if curation is not None else ()
