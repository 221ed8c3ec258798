"""Joins merge two observations of one thing into one. Each is commutative, associative and idempotent.

The later event wins (`occurred_at_us`, on its producer's clock): under idempotency keys event ids are hashes, and the
highest would be random. Of simultaneous events the highest event id wins. Neither settles everything: a repeated
request keeps its id and may differ (a new deadline). So ranks end with the content, and only equal bytes rank equal.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from claw_r1.datapool.fold import bounds
from claw_r1.schemas.events import RewardSlot
from claw_r1.schemas.http import Channel

Rank = tuple[object, ...]
Key = TypeVar("Key", bound=tuple[int | None, str, str])
"""(step index, source, name)"""


def channel(left: str, right: str) -> str:
    """`val` wins, then a channel of the operator's (the first by name), then `train`; empty is unknown."""
    if left == right or not right:
        return left
    return min(left, right, key=_channel_rank) if left else right


def _channel_rank(name: str) -> tuple[int, str]:
    return {Channel.VALIDATION: 0, Channel.TRAIN: 2, "": 3}.get(name, 1), name


def first(left: str | None, right: str | None) -> str | None:
    """The first by name that is not null."""
    if left == right:
        return left
    if left is None or right is None:
        return right if left is None else left
    return min(left, right)


def slot(left: RewardSlot | None, right: RewardSlot) -> RewardSlot:
    """A verdict before a claim, then the highest revision, then the later word, then the highest event id and content."""
    return right if left is None else max(left, right, key=slot_rank)


def slots(now: Mapping[Key, RewardSlot], key: Key, new: RewardSlot) -> dict[Key, RewardSlot]:
    """With one more reward; of too many slots the first remain."""
    merged = {**now, key: slot(now.get(key), new)}
    if len(merged) > bounds.REWARDS_MAX:
        del merged[max(merged, key=_slot_order)]
    return merged


def _slot_order(key: tuple[int | None, str, str]) -> tuple[int, str, str]:
    index, source, name = key
    return -1 if index is None else index, source, name


def slot_rank(slot: RewardSlot) -> tuple[bool, int, int, str, Rank]:
    """Total among the slots of one subject, source and name.

    A scorer's kept verdict, even a failure, outranks any claim in its slot, since a claim's writer
    is free to choose its revision.
    """
    return slot.verdict, slot.revision, slot.occurred_at_us, slot.event_id, content(slot.value, slot.failed)


def content(*values: object) -> Rank:
    """Ranks values field by field: null is lowest, -0.0 is below 0.0. The values must be of equal types."""
    return tuple(_content(value) for value in values)


def _content(value: object) -> Rank:
    if value is None:
        return (False,)
    return (True, value, math.copysign(1.0, value)) if isinstance(value, float) else (True, value)


def sorted_slots(slots: Collection[RewardSlot]) -> tuple[RewardSlot, ...]:
    """Slots in the order of records."""
    if len(slots) < 2:
        return tuple(slots)
    return tuple(
        sorted(slots, key=lambda slot: (-1 if slot.step_index is None else slot.step_index, slot.source, slot.name))
    )


def total(slots: Iterable[RewardSlot]) -> float | None:
    """The sum of the values; None where no slot has one."""
    values = [slot.value for slot in slots if slot.value is not None]
    return math.fsum(values) if values else None


def winners(own: Iterable[RewardSlot], by_index: Iterable[RewardSlot]) -> list[RewardSlot]:
    """One slot per (source, name): a reward by index and one by id of the same call are one subject."""
    won: dict[tuple[str, str], RewardSlot] = {}
    for each in (*own, *by_index):
        key = each.source, each.name
        won[key] = slot(won.get(key), each)
    return list(won.values())
