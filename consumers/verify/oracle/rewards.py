"""The rewards of a trajectory: one slot for each subject, source and name."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from claw_r1.consumers.verify.oracle import bounds
from claw_r1.consumers.verify.oracle.conflicts import FactRank, signed
from claw_r1.consumers.verify.oracle.soundness import PooledFact
from claw_r1.schemas.events import RewardAssigned, RewardSlot, ScoringFailed, TrajectoryCompleted


def winning_rewards(facts: Iterable[PooledFact], end: PooledFact | None) -> list[RewardSlot]:
    """In the order of the record, no more of a subject than it has room for. end: the ending that counts, with its reward."""
    winners: dict[FactRank, RewardSlot] = {}
    slots = [_assigned(fact) for fact in facts if isinstance(fact, RewardAssigned | ScoringFailed)]
    if isinstance(end, TrajectoryCompleted) and end.reward is not None:
        slots.append(_slot(end, source="agent", name="completion", value=end.reward, revision=0))
    for slot in slots:
        subject = (slot.call_id, slot.step_index, slot.source, slot.name)
        former = winners.get(subject)
        if former is None or _rank(slot) > _rank(former):
            winners[subject] = slot
    return _fitting(sorted(winners.values(), key=lambda slot: (_index(slot), slot.source, slot.name)))


def is_completion(slot: RewardSlot) -> bool:
    """Returns whether a slot is the reward that the ending itself carries."""
    return (slot.call_id, slot.step_index, slot.source, slot.name) == (None, None, "agent", "completion")


def step_total(own: Sequence[RewardSlot], indexed: Sequence[RewardSlot]) -> float | None:
    """Sums the slots by call id and by index: those of one source and name are one."""
    best: dict[tuple[str, str], RewardSlot] = {}
    for slot in sorted([*own, *indexed], key=_rank):
        best[slot.source, slot.name] = slot
    values = [slot.value for slot in best.values() if slot.value is not None]
    return math.fsum(values) if values else None


def _assigned(fact: RewardAssigned | ScoringFailed) -> RewardSlot:
    content = {name: getattr(fact, name) for name in ("call_id", "source", "name", "revision")}
    content["verdict"] = fact.verdict is not None
    if isinstance(fact, ScoringFailed):
        return _slot(fact, failed=fact.reason, **content)
    return _slot(fact, value=fact.value, step_index=fact.step_index if fact.call_id is None else None, **content)


def _slot(fact: PooledFact, **content: Any) -> RewardSlot:  # fields of the slot
    return RewardSlot(event_id=fact.envelope.event_id, occurred_at_us=fact.envelope.occurred_at_us, **content)


def _rank(slot: RewardSlot) -> FactRank:
    """Verdict before claim, revision, time, event id, then the number itself; of two zeros the one without a sign is higher.
    Last the word of failure."""
    word = slot.revision, slot.occurred_at_us, slot.event_id
    return slot.verdict, *word, signed(slot.value), signed(slot.failed)


def _index(slot: RewardSlot) -> int:
    return -1 if slot.step_index is None else slot.step_index


def _fitting(slots: Iterable[RewardSlot]) -> list[RewardSlot]:
    counts: dict[str | None, int] = defaultdict(int)
    fitting = []
    for slot in slots:
        counts[slot.call_id] += not is_completion(slot)
        if is_completion(slot) or counts[slot.call_id] <= bounds.SLOTS:
            fitting.append(slot)
    return fitting
