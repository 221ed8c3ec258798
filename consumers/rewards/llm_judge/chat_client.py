"""Questions to an OpenAI-compatible server, by the client that all kinds share.

Invariant: all tries of one question carry one idempotency key, so that our gateway, which
returns the stored reply for it, samples it once. Each goes to channel `judge` under a trajectory
of its own, whose captured calls are the verdict's evidence. Other servers ignore these headers.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from claw_r1.consumers.rewards.http_client import ODD, HttpClient, Refused
from claw_r1.consumers.rewards.scorer import GaveUp, TokenCost
from claw_r1.schemas.http import (
    AGENT_HEADER,
    CALL_ID_HEADER,
    CHANNEL_HEADER,
    GROUP_HEADER,
    IDEMPOTENCY_KEY_HEADER,
    TRAJECTORY_HEADER,
    Channel,
)
from claw_r1.schemas.json_values import JsonDict
from claw_r1.schemas.keys import step_key

UNSTRUCTURED = {400, 415, 422, 501}
"""The statuses of servers that do not have structured output."""
ABSENT, ABSENT_PAUSE_S = "model_not_found", 1.0
"""In our gateway's 404 while no worker serves the model: it may be starting again."""


@dataclass(slots=True)
class JudgeTrail:
    """The cost of the questions on one subject, and the trajectory in which they are captured."""

    trajectory_id: str
    deadline_s: float
    """By `time.monotonic()`."""
    cost: TokenCost = field(default_factory=TokenCost)
    calls: list[str] = field(default_factory=list)


class JudgeReply(NamedTuple):
    """The reply of the model."""

    text: str
    tokens: Sequence[dict[str, Any]] | None
    """`logprobs.content`, where it was sent: the server's, hence Any."""


class ChatClient:
    """The client of one slot; its coroutines run on the loop of `http`."""

    def __init__(self, http: HttpClient, url: str, headers: Mapping[str, str], slot: str) -> None:
        self._http, self._url = http, f"{url.rstrip('/').removesuffix('/v1')}/v1/chat/completions"
        self._headers = {AGENT_HEADER: slot, CHANNEL_HEADER: Channel.JUDGE, **headers}
        self._structured = True

    async def chat(self, trail: JudgeTrail, key: str, body: JsonDict, structure: JsonDict) -> JudgeReply:
        """The reply to a body, held to a form by `structure` where the server can do that. Raises GaveUp.

        key: of the question within its trajectory.
        """
        if not (self._structured and structure):
            return await self._ask(trail, key, body)
        try:
            return await self._ask(trail, key, {**body, **structure})
        except Refused as refusal:
            if refusal.status not in UNSTRUCTURED:
                raise
        reply = await self._ask(trail, f"{key}.plain", body)
        self._structured = False  # the form was what it refused: no other question need try that again
        return reply

    async def _ask(self, trail: JudgeTrail, key: str, body: JsonDict) -> JudgeReply:
        place = {TRAJECTORY_HEADER: quote(trail.trajectory_id, safe=""), IDEMPOTENCY_KEY_HEADER: key}
        trouble: GaveUp | None = None
        while True:
            try:
                fields, headers = await self._http.post_json(
                    self._url, body, {**self._headers, **place}, trail.deadline_s, trouble
                )
                break
            except Refused as refusal:
                if ABSENT not in refusal.body:
                    raise
                trouble = GaveUp("unavailable", refusal.detail)
                if time.monotonic() + ABSENT_PAUSE_S > trail.deadline_s:
                    raise trouble from refusal
                await asyncio.sleep(ABSENT_PAUSE_S)
        try:
            if call_id := headers.get(CALL_ID_HEADER):
                group, trajectory = (unquote(headers.get(name, "")) for name in (GROUP_HEADER, TRAJECTORY_HEADER))
                trail.calls.append(step_key(group, trajectory, call_id).decode())
            choice = fields["choices"][0]
            trail.cost.add(fields, body["messages"], choice["message"])
            logprobs = choice.get("logprobs") or {}
            return JudgeReply(str(choice["message"].get("content") or ""), logprobs.get("content"))
        except ODD as error:
            raise GaveUp("not_json", f"{self._url} answered with no chat completion: {error!r}") from error
