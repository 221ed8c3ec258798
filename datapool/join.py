"""Joins: how two observations of one thing become one. Each is commutative, associative and idempotent."""

from schemas.events import RewardSlot


def channel(left: str, right: str) -> str:
    """`val` wins, then a channel of the operator's (the first by name), then `train`; empty is unknown."""
    return left if left == right else min(left, right, key=_channel_rank)


def _channel_rank(name: str) -> tuple[int, str]:
    return {"val": 0, "train": 2, "": 3}.get(name, 1), name


def first(left: str | None, right: str | None) -> str | None:
    """The first by name that is not null."""
    if left is None or right is None:
        return right if left is None else left
    return min(left, right)


def slot(left: RewardSlot | None, right: RewardSlot) -> RewardSlot:
    """The highest (revision, event_id)."""
    if left is None:
        return right
    return max(left, right, key=lambda one: (one.revision, one.event_id, one.value))
