"""Judgements of a step: which of them count, their ranks, and how one is taken back.

Invariant: a curation is a function of the set of judgements. One that is taken back has no effect at all, whatever was
judged or taken back before or after: the result is as if it had never been given. Nothing is deleted; the record
keeps every judgement, and who took which back. A person outranks every scorer, whenever either spoke: a person's revision
is the time in microseconds, or above what the step had, so the later word wins among people; a scorer's is the generation
that its operator gave it, far below. Of equal revisions the later word wins.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable

from claw_r1.datapool.fold import bounds
from claw_r1.datapool.fold.merge import Rank, content
from claw_r1.schemas.events import Curation, Envelope, Judgement, StepCurated

REVISION_MAX = (1 << 63) - 1
SCORER_REVISION_MAX = (1 << 40) - 1
"""Below every person's revision, which is a time: 2^40 microseconds are the first thirteen days of 1970."""


def annotated(now: Curation | None, fact: StepCurated) -> Curation:
    """The curation after one more judgement; of two with one event id the higher version or content is kept."""
    new = Judgement(
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
    by_id = {judgement.event_id: judgement for judgement in now.judgements} if now is not None else {}
    by_id[new.event_id] = max(by_id.get(new.event_id, new), new, key=_content)
    return _curation(sorted(by_id.values(), key=_version)[-bounds.JUDGEMENTS_MAX :])


def counting(judgements: Iterable[Judgement]) -> list[Judgement]:
    """Returns the judgements that nobody took back, the highest first.

    From the highest down, so that each is reached after all that may take it back: circles need no rule of their own.
    """
    taken_back: set[str] = set()
    kept: list[Judgement] = []
    for judgement in sorted(judgements, key=_version, reverse=True):
        if judgement.event_id not in taken_back:
            kept.append(judgement)
            taken_back.update(judgement.undoes)
    return kept


def _curation(judgements: list[Judgement]) -> Curation:
    """judgements: sorted."""
    effective = [judgement for judgement in counting(judgements) if _says_something(judgement)]
    # The highest comes last, so that of each scorer its word stands.
    scores = {scorer: score for judgement in reversed(effective) for scorer, score in judgement.scores.items()}
    return Curation(
        trainable=next((judgement.trainable for judgement in effective if judgement.trainable is not None), None),
        quality=next((judgement.quality for judgement in effective if judgement.quality is not None), None),
        tags=next((judgement.tags for judgement in effective if judgement.tags is not None), ()),
        note=next((judgement.note for judgement in effective if judgement.note is not None), None),
        who=effective[0].who if effective else "",
        judgements=tuple(judgements),
        scores=dict(sorted(scores.items())),
    )


def _says_something(judgement: Judgement) -> bool:
    return (
        bool(judgement.scores)
        or (judgement.trainable, judgement.quality, judgement.tags, judgement.note) != (None,) * 4
    )


def _version(judgement: Judgement) -> tuple[int, int, str]:
    return judgement.revision, judgement.occurred_at_us, judgement.event_id


def _content(judgement: Judgement) -> Rank:
    scores = tuple((scorer, content(score)) for scorer, score in judgement.scores.items())
    return *_version(judgement), *content(
        judgement.who, judgement.trainable, judgement.quality, judgement.tags, judgement.note, judgement.undoes, scores
    )


def undoing(
    history: Iterable[StepCurated],
    is_undone: Callable[[StepCurated], bool],
    *,
    who: str,
    revision: int,
    make_envelope: Callable[[], Envelope],
) -> list[StepCurated]:
    """Takes the undone judgements back, one event per step; none for a step where none of them counts any more.

    revision: at least; a judgement is taken back only by one above it, whatever the clocks said.
    """
    by_step: dict[tuple[str, str, str], list[StepCurated]] = defaultdict(list)
    for fact in history:
        by_step[fact.group_id, fact.trajectory_id, fact.call_id].append(fact)
    undos: list[StepCurated] = []
    for (group_id, trajectory_id, call_id), facts in sorted(by_step.items()):
        undone_ids = {fact.envelope.event_id for fact in facts if is_undone(fact)}
        undone = [judgement for judgement in counting(_judgements(facts)) if judgement.event_id in undone_ids]
        if undone:
            undos.append(
                StepCurated(
                    envelope=make_envelope(),
                    group_id=group_id,
                    trajectory_id=trajectory_id,
                    call_id=call_id,
                    who=who,
                    revision=min(REVISION_MAX, max(revision, *(1 + judgement.revision for judgement in undone))),
                    undoes=tuple(sorted(judgement.event_id for judgement in undone)),
                )
            )
    return undos


def _judgements(facts: Iterable[StepCurated]) -> tuple[Judgement, ...]:
    curation: Curation | None = None
    for fact in facts:
        curation = annotated(curation, fact)
    return curation.judgements if curation is not None else ()
