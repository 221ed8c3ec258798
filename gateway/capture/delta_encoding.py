"""Calls are written against earlier ones: what a call shares with an acknowledged call is written as a reference to it.

Invariant: leaving anything out of this memory makes events larger, never wrong. A base is another call of the same
trajectory that this process captured and that is acknowledged, was received before the call itself, and ended. Every
`CHAIN_MAX`-th call of a chain is written in full, so a reader follows few.

Under an idempotency key another gateway may answer the same call again, before or after this one, and the pool counts
the attempt that was received last. So an edge holds with whichever attempt of its base counts, or says which one it
needs: it keeps no more than the base's prompt, which all attempts have, or all of prompt and response, since then the
agent evidently went on with that response (`base_digest`). A later attempt without a key is written in full, since others
may stand on an earlier one. And a call under a key, which may be an earlier call asked again, is written against shorter
prompts only (of equal ones, shorter bodies, then lower ids): such edges close no circle, whichever attempts they are of.

A body is written by what it begins and ends with, as its base does: clients write `tools` behind messages that grow.
Together the two ends are never longer than the base or the body, so no byte of either is taken twice.

Only the tips are kept: a call that another one begins with stands in it, so a conversation that grows is one entry.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import NamedTuple

from claw_r1.datapool.digests import base_digest
from claw_r1.gateway.call_protocol import EngineReply
from claw_r1.gateway.capture.events import EncodedCall, ModelCall
from claw_r1.gateway.paths import Identity
from claw_r1.schemas.arrays import ITEM_BYTES
from claw_r1.schemas.events import CallCaptured, Edge

CHAIN_MAX = 64
WORTH_BYTES = 64
"""Less saved than this is not worth a dependence; a call that goes on from all of its base is written so anyway."""
EVENT_BYTES_MAX = 900_000
"""A larger event may have been stored without its bodies: nothing can be written against them."""


class DeltaBase(NamedTuple):
    """A call that others may be written against."""

    call_id: str
    received_us: int
    whole: bytes
    """Packed ids of prompt and response."""
    body: bytes
    prompt_digest: str
    depth: int
    """Calls between it and one that is written in full."""
    prompt_bytes: int
    """The length of the prompt within `whole`."""

    @property
    def size_bytes(self) -> int:
        return len(self.whole) + len(self.body) + 700


class DeltaEncoder:
    """The tips of recent trajectories: `calls_max` each, `bytes_max` in all, the longest unused
    trajectory goes first."""

    def __init__(self, bytes_max: int, calls_max: int) -> None:
        self._bytes_max, self._calls_max = bytes_max, calls_max
        self._tips: OrderedDict[Identity, list[DeltaBase]] = OrderedDict()
        self.size_bytes = 0

    def encode(self, call: ModelCall, reply: EngineReply) -> list[EncodedCall]:
        """Encodes each choice. Nearly always they have one prompt."""
        own = [reply.prompt_ids if choice.prompt_ids is None else choice.prompt_ids for choice in reply.choices]
        edges = {prompt: self._encode(call, prompt) for prompt in dict.fromkeys(own)}
        return [edges[prompt] for prompt in own]

    def _encode(self, call: ModelCall, prompt: bytes) -> EncodedCall:
        """Edges of a prompt and of the body, against the tip that shares the most tokens (bytes where there are none)."""
        body = call.request.body
        base, prompt_keep, (front, end) = self._closest(call, prompt)
        prompt_edge = _edge(prompt, ITEM_BYTES, base, prompt_keep, sha256(prompt).hexdigest())
        request_edge = _edge(body, 1, base, front, call.request_digest, end)
        depth = base.depth + 1 if base is not None and (prompt_keep or front or end) else 0
        digest = _base_digest(base, prompt_keep) if base is not None and prompt_keep else ""
        return EncodedCall(prompt_edge, request_edge, depth, digest)

    def _closest(self, call: ModelCall, prompt: bytes) -> tuple[DeltaBase | None, int, tuple[int, int]]:
        """The base that shares the most; how many ids are kept of it, and how many bytes at both ends of its body."""
        base, ids, body = None, -1, (0, 0)
        for tip in self._tips.get(call.identity, ()):
            if _may_be_base(tip, call, len(prompt)):
                shared, ends = _shared(prompt, tip.whole, ITEM_BYTES), _shared_ends(call.request.body, tip.body)
                if base is None or (shared, sum(ends)) > (ids, sum(body)):
                    base, ids, body = tip, shared, ends
        if base is None:
            return None, 0, (0, 0)
        goes_on = 0 < len(base.whole) == ids * ITEM_BYTES
        ids = ids if goes_on else min(ids, base.prompt_bytes // ITEM_BYTES)
        worth_it = goes_on or ids * ITEM_BYTES >= WORTH_BYTES
        return base, ids if worth_it else 0, body if sum(body) >= WORTH_BYTES else (0, 0)

    def remember(
        self, call: ModelCall, reply: EngineReply, encoded: Sequence[EncodedCall], events: Sequence[CallCaptured]
    ) -> None:
        """Remember acknowledged events as bases of what comes."""
        if not call.identity.named:  # a lane that we made up has one call
            return
        for event, choice, edges in zip(events, reply.choices, encoded, strict=True):
            prompt_ids = reply.prompt_ids if choice.prompt_ids is None else choice.prompt_ids
            written = len(event.prompt.suffix) + len(event.request.suffix) + len(event.response_body)
            if event.status == "completed" and written + 2 * len(event.response_ids) <= EVENT_BYTES_MAX:
                base = DeltaBase(
                    call_id=event.call_id,
                    received_us=call.received_us,
                    whole=prompt_ids + event.response_ids,
                    body=call.request.body,
                    prompt_digest=event.prompt.full_digest,
                    depth=edges.depth,
                    prompt_bytes=len(prompt_ids),
                )
                self._add(call.identity, base)
        self._shrink()

    def _add(self, identity: Identity, base: DeltaBase) -> None:
        before = self._tips.pop(identity, [])
        tips = [tip for tip in before if tip.call_id != base.call_id and not _stands_in(tip, base)]
        tips = [*tips, base][-self._calls_max :]
        self._tips[identity] = tips
        self.size_bytes += _bytes(tips) - _bytes(before)

    def _shrink(self) -> None:
        while self._tips and self.size_bytes > self._bytes_max:
            self.size_bytes -= _bytes(self._tips.popitem(last=False)[1])


def _stands_in(tip: DeltaBase, base: DeltaBase) -> bool:
    # Equal ids (two providers without any) say nothing; their bodies decide then, which differ in their ends.
    return bool(tip.whole) and base.whole.startswith(tip.whole) and base.received_us > tip.received_us


def _may_be_base(tip: DeltaBase, call: ModelCall, prompt_bytes: int) -> bool:
    itself = tip.call_id.startswith(call.call_id)  # or another choice of it
    if itself or tip.received_us >= call.received_us or tip.depth + 1 >= CHAIN_MAX:
        return False
    if call.attempt.number and not call.attempt.keyed:
        return False
    own = prompt_bytes, len(call.request.body), call.call_id
    return call.headers.idempotency_key is None or (tip.prompt_bytes, len(tip.body), tip.call_id) < own


def _base_digest(base: DeltaBase, keep: int) -> str:
    response = memoryview(base.whole)[base.prompt_bytes :]
    length = base.prompt_bytes // ITEM_BYTES
    return base_digest(keep, length, base.prompt_digest, sha256(response).hexdigest() if keep > length else "")


def _bytes(tips: Sequence[DeltaBase]) -> int:
    return sum(tip.size_bytes for tip in tips)


def _edge(data: bytes, unit: int, base: DeltaBase | None, keep: int, digest: str, keep_end: int = 0) -> Edge:
    return Edge(
        base_call_id=base.call_id if base is not None and (keep or keep_end) else None,
        keep=keep,
        keep_end=keep_end,
        suffix=data[keep * unit : len(data) - keep_end * unit],
        full_length=len(data) // unit,
        full_digest=digest,
    )


def _shared(left: bytes, right: bytes, unit: int = 1) -> int:
    """Units that both begin with."""
    return _longest(lambda low, high: left[low:high] == right[low:high], min(len(left), len(right))) // unit


def _shared_ends(left: bytes, right: bytes) -> tuple[int, int]:
    """Bytes that both begin with, and bytes that what is left of both ends with."""
    front, ends = _shared(left, right), (len(left), len(right))

    def equal(low: int, high: int) -> bool:
        return left[ends[0] - high : ends[0] - low] == right[ends[1] - high : ends[1] - low]

    return front, _longest(equal, min(ends) - front)


def _longest(equal: Callable[[int, int], bool], high: int) -> int:
    """The most that is equal from 0 on. Halving compares blocks at memory speed, where a loop would take milliseconds."""
    low = 0
    if equal(low, high):
        return high
    while low + 1 < high:
        middle = (low + high) // 2
        if equal(low, middle):
            low = middle
        else:
            high = middle
    return low
