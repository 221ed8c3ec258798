"""Facts of a conversation in several calls, as a gateway writes them: each request repeats what was said, as a change of the one before."""

import hashlib
from collections.abc import Sequence
from typing import Any

import orjson

from claw_r1.schemas.arrays import pack_ids
from claw_r1.schemas.events import CallCaptured, Edge, Timings
from tests import facts

Said = dict[str, Any]
SECOND_US = 1_000_000
BEGIN_US = 1_790_000_000 * SECOND_US


def body_edge(body: bytes, base_id: str | None = None, base: bytes = b"") -> Edge:
    """What both ends share with the base is kept."""
    shortest = min(len(body), len(base))
    keep = next((n for n in range(shortest) if body[n] != base[n]), shortest)
    longest = shortest - keep
    keep_end = next((n for n in range(longest) if body[-1 - n] != base[-1 - n]), longest)
    suffix = body[keep : len(body) - keep_end]
    digest = hashlib.sha256(body).hexdigest()
    edge = Edge(suffix=suffix, full_length=len(body), full_digest=digest, keep=keep, keep_end=keep_end)
    return (
        edge
        if base_id is None
        else Edge(**{**{f: getattr(edge, f) for f in edge.__struct_fields__}, "base_call_id": base_id})
    )


class Speaker:
    """One trajectory; `call` makes its next call."""

    def __init__(self, group: str = "g", trajectory: str = "t", *, full_every: int = 64, **changes: object) -> None:
        self.ids = (group, trajectory)
        self.full_every, self.changes = full_every, changes
        self.bodies: dict[str, bytes] = {}
        self.calls: dict[str, CallCaptured] = {}
        self.depths: dict[str, int] = {}

    def call(
        self,
        messages: Sequence[Said],
        reply: Said,
        call_id: str | None = None,
        *,
        base: str | None = None,
        **changes: object,
    ) -> CallCaptured:
        """base: the call that it is written against; None: in full."""
        name = call_id or f"c{len(self.calls):05d}"
        body = orjson.dumps({"messages": list(messages), "model": "tiny"})
        at_us = BEGIN_US + 10 * SECOND_US * len(self.calls)
        depth = self.depths[base] + 1 if base else 0
        base = base if depth < self.full_every else None
        earlier = self.calls[base] if base else None
        prompt = facts.edge([1, 2, 3])
        digest = ""
        if earlier is not None:
            whole = earlier.prompt.full_length + len(earlier.response_ids) // 4
            prompt = facts.edge([4, 5], base=base, keep=whole)
            digest = facts.written_against(earlier, whole)
        fields: dict[str, object] = {
            "request": body_edge(body, base, self.bodies.get(base or "", b"")),
            "response_body": orjson.dumps({"choices": [{"index": 0, "message": {"role": "assistant", **reply}}]}),
            "prompt": prompt,
            "base_digest": digest,
            "response_ids": pack_ids([7, 8, 9]),
            "timings": Timings(
                received_us=at_us,
                dispatched_us=at_us + SECOND_US // 2,
                first_token_us=at_us + SECOND_US,
                done_us=at_us + 4 * SECOND_US,
            ),
            **self.changes,
            **changes,
        }
        made = facts.call(*self.ids, name, **fields)
        self.bodies[name], self.calls[name], self.depths[name] = body, made, depth if base else 0
        return made


def told(
    count: int, group: str = "g", trajectory: str = "t", *, text: str = "step", window: int = 1 << 30, **changes: object
) -> list[CallCaptured]:
    """An agent that uses a tool in every call but the last. window: messages after which it begins again with the first two."""
    speaker = Speaker(group, trajectory, **changes)
    messages: list[Said] = [
        {"role": "system", "content": "You are careful."},
        {"role": "user", "content": f"{text}: begin"},
    ]
    before = None
    for n in range(count):
        asks = {
            "id": f"tool-{n}",
            "type": "function",
            "function": {"name": "search", "arguments": f'{{"q": "{text} {n}"}}'},
        }
        reply: Said = {"content": f"{text} {n}"} | ({"tool_calls": [asks]} if n < count - 1 else {})
        if len(messages) > window:
            messages = messages[:2]
        before = speaker.call(messages, reply, base=before).call_id
        messages += [
            {"role": "assistant", **reply},
            {"role": "tool", "tool_call_id": f"tool-{n}", "content": f"result {n} of {text}"},
        ]
    return list(speaker.calls.values())
