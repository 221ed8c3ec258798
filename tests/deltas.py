"""A small writer of prompt edges: against the call that shares the most ids. What a gateway does, without its bounds."""

import hashlib
from collections.abc import Mapping

from claw_r1.schemas.events import Edge

ITEM_BYTES = 4


def delta(prompt: bytes, bases: Mapping[str, bytes]) -> Edge:
    """Edge of a packed prompt; bases: call_id -> packed prompt + response of calls captured before."""
    shared = {call_id: _shared(prompt, base) for call_id, base in bases.items()}
    base = max(shared, key=lambda call_id: shared[call_id], default=None)
    keep = 0 if base is None else shared[base]
    return Edge(
        base_call_id=base if keep else None,
        keep=keep,
        suffix=prompt[keep * ITEM_BYTES :],
        full_length=len(prompt) // ITEM_BYTES,
        full_digest=hashlib.sha256(prompt).hexdigest(),
    )


def _shared(left: bytes, right: bytes) -> int:
    """Ids that both begin with."""
    low, high = 0, min(len(left), len(right)) // ITEM_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        same = left[: middle * ITEM_BYTES] == right[: middle * ITEM_BYTES]
        low, high = (middle, high) if same else (low, middle - 1)
    return low
