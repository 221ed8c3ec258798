"""Who outranks whom in judging a step, and how a judgement is taken back.

Invariant: a person outranks every scorer, whenever either spoke. A person's revision is the time in microseconds, so the
later word wins among people; a scorer's is the generation that its operator gave it, far below. Nothing is deleted: an
undo is one more judgement, which says what stood before.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from datapool.state import StepState
from datapool.step import UNJUDGED, curated
from schemas.events import Curation, Envelope, StepCurated

SCORER_REVISION_MAX = (1 << 40) - 1
"""Below every person's: 2^40 microseconds after 1970 was a January."""


def undoing(
    history: Iterable[StepCurated],
    is_undone: Callable[[StepCurated], bool],
    *,
    who: str,
    revision: int,
    make_envelope: Callable[[], Envelope],
) -> list[StepCurated]:
    """Judgements that restore what each step had without the undone ones; fields where a later word stands stay."""
    by_step: dict[tuple[str, str, str], list[StepCurated]] = defaultdict(list)
    for fact in history:
        by_step[fact.group_id, fact.trajectory_id, fact.call_id].append(fact)
    made: list[StepCurated] = []
    for (group_id, trajectory_id, call_id), facts in sorted(by_step.items()):
        restored = _restored(facts, is_undone)
        if restored:
            made.append(
                StepCurated(
                    envelope=make_envelope(),
                    group_id=group_id,
                    trajectory_id=trajectory_id,
                    call_id=call_id,
                    who=who,
                    revision=revision,
                    **restored,
                )
            )
    return made


def _restored(facts: Sequence[StepCurated], is_undone: Callable[[StepCurated], bool]) -> dict[str, Any]:  # fields
    """Fields of the judgement that takes the undone ones' place; empty when none of them stands."""
    now, before = _folded(facts), _folded(fact for fact in facts if not is_undone(fact))
    changed = [name for name in now.versions if now.versions[name] != before.versions.get(name)]
    values = {name: getattr(before, name) for name in changed}
    kept: dict[str, Any] = {name: value for name, value in values.items() if value != UNJUDGED[name]}
    cleared = tuple(sorted(values.keys() - kept.keys()))
    return {**kept, "clears": cleared} if changed else {}


def _folded(facts: Iterable[StepCurated]) -> Curation:
    state = StepState()
    for fact in facts:
        state = curated(state, fact)
    return state.curation or Curation()
