"""Questions to an OpenAI-compatible server, tried again until the caller's deadline cancels them.

Invariant: all tries of one question carry one idempotency key and count up, so that our gateway, which by it gives the reply that it
holds, samples it once. Each goes to channel `judge` under a trajectory of its own, whose captured calls are the verdict's evidence.
Other servers ignore these headers.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import aiohttp
import orjson

from consumers.rewards.judging.errors import ServerRefused, Setback
from schemas.http import (
    AGENT_HEADER,
    CALL_ID_HEADER,
    CHANNEL_HEADER,
    GROUP_HEADER,
    IDEMPOTENCY_KEY_HEADER,
    RETRY_COUNT_HEADER,
    TRAJECTORY_HEADER,
    Channel,
)
from schemas.keys import step_key

REPLY_BYTES_MAX = 16 << 20
DETAIL_CHARACTERS_MAX = 300
PAUSE_S, PAUSE_MAX_S = 0.25, 8.0
"""Before the second try, doubled for each further one; a random half of it is left out, so that many do not come back at once."""
PASSING = {408, 409, 425, 429}
"""Statuses below 500 that may pass."""
UNSTRUCTURED = {400, 415, 422, 501}
"""What servers answer that do not have structured output."""
ABSENT = b"model_not_found"
"""Our gateway's 404 while no worker serves the model: it may be starting again."""
Body = dict[str, Any]  # OpenAI's, of mixed types


@dataclass(slots=True)
class JudgeTrail:
    """What the questions on one subject have cost, and where they are captured."""

    trajectory_id: str
    deadline: float
    """On the loop's clock."""
    tokens: int = 0
    calls: list[str] = field(default_factory=list)
    setback: Setback | None = None
    """The last one."""


class JudgeReply(NamedTuple):
    """What the model said."""

    text: str
    tokens: Sequence[dict[str, Any]] | None
    """`logprobs.content`, where it was sent: the server's, hence Any."""


class ChatClient:
    """To be used on one event loop; `open` before anything else."""

    def __init__(self, url: str, headers: Mapping[str, str], slot: str, concurrency: int) -> None:
        base = url.rstrip("/").removesuffix("/v1")
        self._url, self._headers = f"{base}/v1/chat/completions", {AGENT_HEADER: quote(slot, safe="/"), **headers}
        self._free = asyncio.Semaphore(concurrency)
        self._structured = True
        self._http: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Needs the running loop."""
        connector = aiohttp.TCPConnector(limit=0)  # `concurrency` is the limit
        self._http = aiohttp.ClientSession(
            connector=connector, headers=self._headers, timeout=aiohttp.ClientTimeout(total=None)
        )

    async def close(self) -> None:
        """Closes the connections."""
        if self._http is not None:
            await self._http.close()

    async def chat(self, trail: JudgeTrail, key: str, body: Body, structure: Body) -> JudgeReply:
        """The reply to a body, held to a form by `structure` where the server can do that. Raises ServerRefused.

        key: of the question within its trajectory. Goes on until it is cancelled; what came in between is in the trail.
        """
        if self._structured and structure:
            try:
                return await self._until_answered(trail, key, {**body, **structure})
            except ServerRefused as refusal:
                if refusal.status not in UNSTRUCTURED:
                    raise
            reply = await self._until_answered(trail, f"{key}.plain", body)
            self._structured = False  # the form was what it refused: no other question need try that again
            return reply
        return await self._until_answered(trail, key, body)

    async def _until_answered(self, trail: JudgeTrail, key: str, body: Body) -> JudgeReply:
        pause_s, tries = PAUSE_S, 0
        while True:
            try:
                async with self._free:
                    return await self._once(trail, {IDEMPOTENCY_KEY_HEADER: key, RETRY_COUNT_HEADER: str(tries)}, body)
            except ServerRefused:
                raise
            except Setback as setback:
                trail.setback = setback
                wanted_s = setback.retry_after_s or 0.0
            except (aiohttp.ClientError, OSError) as error:
                trail.setback = Setback("unavailable", _line(f"{type(error).__name__}: {error}"))
                wanted_s = 0.0
            await asyncio.sleep(max(wanted_s, pause_s * random.uniform(0.5, 1.0)))  # noqa: S311 - no secret
            pause_s, tries = min(PAUSE_MAX_S, pause_s * 2), tries + 1

    async def _once(self, trail: JudgeTrail, headers: Mapping[str, str], body: Body) -> JudgeReply:
        """Raises Setback, ServerRefused, aiohttp's ClientError, OSError."""
        assert self._http is not None, "opened before anything is asked"
        place = {TRAJECTORY_HEADER: quote(trail.trajectory_id, safe=""), CHANNEL_HEADER: Channel.JUDGE}
        type_ = {"content-type": "application/json"}
        async with self._http.post(
            self._url, data=orjson.dumps(body), headers={**place, **type_, **headers}, allow_redirects=False
        ) as reply:
            content = await _bounded(reply)
        if reply.status != 200:
            raise _setback(reply.status, reply.headers.get("retry-after"), content)
        said, tokens = _reply(content)
        trail.tokens += tokens
        if call_id := reply.headers.get(CALL_ID_HEADER):
            group, trajectory = (unquote(reply.headers.get(name, "")) for name in (GROUP_HEADER, TRAJECTORY_HEADER))
            trail.calls.append(step_key(group, trajectory, call_id).decode())
        return said


async def _bounded(reply: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    async for chunk in reply.content.iter_any():
        content += chunk
        if len(content) > REPLY_BYTES_MAX:
            raise Setback("not_json", f"a reply of more than {REPLY_BYTES_MAX >> 20} MiB")
    return bytes(content)


def _setback(status: int, retry_after: str | None, content: bytes) -> Setback:
    detail = _line(f"{status}: {content[:2000].decode('utf-8', 'replace')}")
    if (status >= 500 and status not in UNSTRUCTURED) or status in PASSING or ABSENT in content:
        return Setback("unavailable", detail, retry_after_s=_seconds(retry_after))
    return ServerRefused(status, detail)


def _seconds(retry_after: str | None) -> float | None:
    """Of Retry-After; a date is None, our own pause serves as well."""
    return float(retry_after) if retry_after and retry_after.isascii() and retry_after.isdigit() else None


def _reply(content: bytes) -> tuple[JudgeReply, int]:
    """With the tokens of its usage. Raises Setback for what is no chat completion."""
    try:
        fields = orjson.loads(content)
        choice, usage = fields["choices"][0], fields.get("usage") or {}
        text, logprobs = choice["message"].get("content") or "", choice.get("logprobs") or {}
        used = int(usage.get("prompt_tokens") or 0) + int(usage.get("completion_tokens") or 0)
        return JudgeReply(str(text), logprobs.get("content")), used
    except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError, ValueError) as error:
        raise Setback("not_json", _line(f"no chat completion: {content[:200].decode('utf-8', 'replace')}")) from error


def _line(text: str) -> str:
    return " ".join(text.split())[:DETAIL_CHARACTERS_MAX]
