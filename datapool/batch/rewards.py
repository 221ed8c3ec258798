"""The value of the reward slots of a call or a trajectory under a spec: which count, how people's are merged, which are
missing. Pure.

Invariant: an empty slot (taken back, or given up), one of weight 0, and one hidden by a preferred
slot count as absent, in this order; then several people's rewards of one name become one. For a spec
with none of this the sum is the pool's own, except for several people's rewards of one subject.
"""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from claw_r1.datapool.batch.spec import BatchSpec, SlotPattern, matches
from claw_r1.datapool.feedback import COMMENT, HUMAN
from claw_r1.datapool.fold.merge import slot_rank
from claw_r1.schemas.events import RewardSlot

SLOTS_SHOWN = 20
SAID_NOTHING = "nothing to say"
"""The reason of a slot that its scorer left empty by a verdict, in words that no scorer's failure has."""
Slots = Sequence[RewardSlot]
"""The slots of one subject: a call, or the trajectory itself."""


def _majority(values: Sequence[float]) -> float:
    votes = Counter(values).most_common()
    return statistics.fmean(value for value, count in votes if count == votes[0][1])


MERGES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "majority": _majority,
    "latest": lambda values: values[-1],
}
"""`BatchSpec.reward_merge` -> values in the order in which they were said -> their one value."""


def slot_name(slot: RewardSlot) -> str:
    """Returns the name of a slot as specs write it."""
    return f"{slot.source}/{slot.name}"


def slot_text(slot: RewardSlot) -> str:
    """A slot for people: its name and value, or why it has none."""
    empty = SAID_NOTHING if slot.verdict else "taken back"
    value = empty if slot.value is None else f"{slot.value:g}"
    return f"{slot_name(slot)} {value if slot.failed is None else f'failed ({slot.failed})'}"


def emptied(slots: Iterable[RewardSlot]) -> Iterator[RewardSlot]:
    """Slots that were taken back or given up: without a value, which a person's comment never has."""
    return (slot for slot in slots if slot.value is None and slot.name != COMMENT)


def is_filled(slot: RewardSlot, spec: BatchSpec) -> bool:
    """Returns whether the slot has a value that the spec counts."""
    return slot.value is not None and spec.slot_weight(slot_name(slot)) != 0


def counting(slots: Iterable[RewardSlot], spec: BatchSpec) -> list[RewardSlot]:
    """The slots that count, before people are merged."""
    filled = [slot for slot in slots if is_filled(slot, spec)]
    for patterns in spec.reward_prefer:
        places = [_place(slot, patterns) for slot in filled]
        first = min((place for place in places if place is not None), default=None)
        filled = [slot for slot, place in zip(filled, places, strict=True) if place in (None, first)]
    return filled


def _place(slot: RewardSlot, patterns: Sequence[SlotPattern]) -> int | None:
    return next((place for place, pattern in enumerate(patterns) if matches(pattern, slot_name(slot))), None)


def votes(slots: Iterable[RewardSlot]) -> dict[str, list[RewardSlot]]:
    """Several people's rewards by name, in order of time; a single person's reward is not merged."""
    people: dict[str, list[RewardSlot]] = defaultdict(list)
    for slot in sorted(slots, key=slot_rank):  # no person's word has a verdict
        if slot.source.startswith(HUMAN):
            people[slot.name].append(slot)
    return {name: slots for name, slots in people.items() if len(slots) > 1}


def worth(slots: Iterable[RewardSlot], spec: BatchSpec) -> float | None:
    """Returns the reward of one subject; None where nothing counts."""
    kept = counting(slots, spec)
    merged = votes(kept)
    alone = [slot for slot in kept if not (slot.name in merged and slot.source.startswith(HUMAN))]
    terms = [_weighted(slot, spec) for slot in alone] + [merged_value(each, spec) for each in merged.values()]
    return math.fsum(terms) if terms else None


def merged_value(slots: Iterable[RewardSlot], spec: BatchSpec) -> float:
    """Merges the values of several people, in the order in which they were given; weights applied."""
    return MERGES[spec.reward_merge]([_weighted(slot, spec) for slot in slots])


def _weighted(slot: RewardSlot, spec: BatchSpec) -> float:
    assert slot.value is not None  # it counts
    return spec.slot_weight(slot_name(slot)) * slot.value


def sums_as_pool(subjects: Iterable[Slots], spec: BatchSpec) -> bool:
    """Returns whether the pool's own sums are the ones that the spec asks for."""
    if spec.reward_weights or spec.reward_prefer or not isinstance(spec.reward_missing, str):
        return False
    return not any(votes(slot for slot in slots if slot.value is not None) for slots in subjects if len(slots) > 1)


def slots_never_rewarded(spec: BatchSpec, slots: Collection[str]) -> list[str]:
    """A line for each slot of the spec that was never filled. slots: `source/name` of all filled ones."""
    fields = {
        "reward_weights": sorted(spec.reward_weights.keys() - {"*"}),
        "reward_prefer": [pattern for patterns in spec.reward_prefer for pattern in patterns],
        "rewards_required": spec.rewards_required,
    }
    there = ", ".join(sorted(slots)[:SLOTS_SHOWN]) or "none"
    return [
        f"{field}: nobody has given {pattern} yet (the pool's slots: {there})"
        for field, patterns in fields.items()
        for pattern in patterns
        if not any(matches(pattern, slot) for slot in slots)
    ]


Lacking = Mapping[SlotPattern, str | None]
"""Required slot that a trajectory lacks -> why its scorer gave up, or `SAID_NOTHING`; None: it may still speak."""


def lacking(own: Slots, calls: Sequence[Slots], spec: BatchSpec) -> dict[SlotPattern, str | None]:
    """Returns the rewards that a trajectory lacks, each with the reason why its scorer gives none. own: its slots;
    calls: those of each call that must be judged where it is not itself."""
    return {
        pattern: _silence(tuple(_slots_of((own, *calls), pattern)), pattern)
        for pattern in spec.rewards_required
        if not _has(own, pattern, spec) and not (calls and all(_has(slots, pattern, spec) for slots in calls))
    }


def _silence(slots: Slots, pattern: SlotPattern) -> str | None:
    """Returns why a pattern that is not met will not be. Where it means several slots, another may still be filled
    when one scorer has nothing to say."""
    empty = SAID_NOTHING if "*" not in pattern and any(slot.verdict and slot.value is None for slot in slots) else None
    return min((slot.failed for slot in slots if slot.failed is not None), default=empty)


def _has(slots: Slots, pattern: SlotPattern, spec: BatchSpec) -> bool:
    return any(is_filled(slot, spec) for slot in _slots_of((slots,), pattern))


def _slots_of(subjects: Iterable[Slots], pattern: SlotPattern) -> Iterator[RewardSlot]:
    return (slot for slots in subjects for slot in slots if matches(pattern, slot_name(slot)))


def supplied(
    own: Slots, calls: Sequence[Slots], spec: BatchSpec, lacks: Lacking, *, closed: bool
) -> tuple[Slots, list[Slots], Lacking]:
    """The slots with `reward_missing: {value: X}` in place of what is missing, and what is missing all the same.

    closed: the group, so that nothing is waited for. Where the calls are judged, each one that lacks the slot takes the
    value; else the trajectory does, once.
    """
    missing = spec.reward_missing
    if isinstance(missing, str):
        return own, list(calls), lacks
    judged, waits = list(calls), missing.get("wait", False) and not closed
    for pattern in (pattern for pattern, failed in lacks.items() if failed is not None or not waits):
        source, _, name = pattern.partition("/")
        slot = RewardSlot(source=source, name=name, value=missing["value"], revision=0, event_id="")
        if any(_slots_of(calls, pattern)):
            judged = [slots if _has(slots, pattern, spec) else (*slots, slot) for slots in judged]
        else:
            own = (*own, slot)
    return own, judged, {pattern: failed for pattern, failed in lacks.items() if failed is None and waits}
