"""Requests to the gateway, repeated until they are answered or the retry budget is spent.

Invariant: all attempts of one request carry the same idempotency key and count up from 0, so that a gateway killed
between doing and answering sees that it is one request, and which of two captured replies the agent went on with.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from types import MappingProxyType, TracebackType
from typing import Self
from uuid import uuid4

import aiohttp
import orjson
import structlog

from claw_r1.agentflow.bodies import JsonObject
from claw_r1.agentflow.errors import GatewayUnavailable, InvalidPlan, MalformedReply, RequestRefused
from claw_r1.agentflow.settings import AgentFlowSettings
from claw_r1.schemas.http import IDEMPOTENCY_KEY_HEADER, RETRY_COUNT_HEADER

log = structlog.get_logger()

BUSY = 429
UNAVAILABLE = frozenset({502, 503, 504})


@dataclass(frozen=True, slots=True)
class GatewayAnswer:
    """Status, headers (case-insensitive) and JSON body of an answer."""

    status: int
    headers: Mapping[str, str]
    body: JsonObject

    def code(self) -> str:
        """The gateway's short word for what is wrong; empty where it gives none."""
        return str(_error_of(self.body).get("code") or "")

    def retry_after_s(self) -> float | None:
        """Seconds that the gateway asks for before the next attempt; its body may give fractions, its header whole ones."""
        seconds = _error_of(self.body).get("retry_after_s", self.headers.get("Retry-After"))
        try:
            return None if seconds is None else max(0.0, float(seconds))
        except (TypeError, ValueError):
            return None  # Retry-After may be a date; our own pause serves as well.


@dataclass(frozen=True, slots=True)
class _Failure:
    reason: str
    retry_after_s: float | None = None


class GatewayTransport:
    """One HTTP session to one gateway; use as an async context manager."""

    def __init__(self, base_url: str, headers: Mapping[str, str], settings: AgentFlowSettings) -> None:
        if not base_url.startswith(("http://", "https://")):
            raise InvalidPlan(f"the gateway's address must begin with http:// or https://, not {base_url!r}")
        self.base_url = base_url.rstrip("/")
        self._headers = dict(headers)
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        key = self._settings.api_key
        authorization = {} if key is None else {"authorization": f"Bearer {key.get_secret_value()}"}
        # The runner bounds what is in flight; a second limit here would only queue where nobody looks.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=self._settings.request_timeout_s),
            headers={"content-type": "application/json", **authorization, **self._headers},
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def post(
        self,
        path: str,
        body: JsonObject,
        headers: Mapping[str, str] = MappingProxyType({}),
        *,
        busy_is_an_answer: bool = False,
    ) -> GatewayAnswer:
        """The answer, when it is a success (or 429 where `busy_is_an_answer`).

        Raises GatewayUnavailable, RequestRefused, MalformedReply.
        """
        return await self._repeated("POST", path, orjson.dumps(body), headers, busy_is_an_answer)

    async def get(self, path: str) -> GatewayAnswer:
        """The answer, when it is a success. Raises as `post`."""
        return await self._repeated("GET", path, None, {}, False)

    async def _repeated(
        self, method: str, path: str, payload: bytes | None, own: Mapping[str, str], busy_is_an_answer: bool
    ) -> GatewayAnswer:
        url, key = self.base_url + path, uuid4().hex
        budget_s = self._settings.retry_budget_s
        gives_up_at: float | None = None
        for attempt in count():
            headers = {**own, IDEMPOTENCY_KEY_HEADER: key, RETRY_COUNT_HEADER: str(attempt)}
            outcome = await self._attempt(method, url, headers, payload, busy_is_an_answer)
            if isinstance(outcome, GatewayAnswer):
                return outcome
            now = asyncio.get_running_loop().time()
            gives_up_at = gives_up_at or now + budget_s
            pause_s = self._pause_s(attempt, outcome)
            if now + pause_s > gives_up_at:
                raise GatewayUnavailable(url, outcome.reason, budget_s)
            log.debug("request_repeated", url=url, reason=outcome.reason, attempt=attempt, pause_s=pause_s)
            await asyncio.sleep(pause_s)
        raise AssertionError("unreachable")

    async def _attempt(
        self, method: str, url: str, headers: Mapping[str, str], payload: bytes | None, busy_is_an_answer: bool
    ) -> GatewayAnswer | _Failure:
        try:
            answer = await self._once(method, url, headers, payload)
        except aiohttp.InvalidURL as error:
            raise InvalidPlan(f"{url!r} is no address") from error
        except (aiohttp.ClientError, TimeoutError) as error:  # also what is no HTTP, as a proxy that restarts may send
            return _Failure(f"{type(error).__name__}: {error}")
        if answer.status < 300 or (answer.status == BUSY and busy_is_an_answer):
            return answer
        if answer.status == BUSY or answer.status in UNAVAILABLE:
            return _Failure(f"HTTP {answer.status}", answer.retry_after_s())
        refusal = _error_of(answer.body)
        raise RequestRefused(
            answer.status, str(refusal.get("message", "no message")), refusal.get("code"), refusal.get("param")
        )

    async def _once(self, method: str, url: str, headers: Mapping[str, str], payload: bytes | None) -> GatewayAnswer:
        if self._session is None:
            raise RuntimeError("use the client as an async context manager")
        async with self._session.request(method, url, data=payload, headers=headers) as response:
            return GatewayAnswer(
                response.status, response.headers, _json_of(await response.read(), response.status, url)
            )

    def _pause_s(self, attempt: int, failure: _Failure) -> float:
        doubled = self._settings.retry_pause_s * 2 ** min(attempt, 16)
        pause_s = doubled if failure.retry_after_s is None else failure.retry_after_s
        return min(pause_s, self._settings.retry_pause_max_s)


def _json_of(content: bytes, status: int, url: str) -> JsonObject:
    """The body as a JSON object; an error page of another kind counts as an empty one, because its status says enough."""
    try:
        body = orjson.loads(content) if content else {}
    except orjson.JSONDecodeError:
        body = None
    if isinstance(body, dict):
        return body
    if status >= 300:
        return {}
    raise MalformedReply(f"{url} answered {status} with something other than a JSON object")


def _error_of(body: JsonObject) -> JsonObject:
    error = body.get("error")
    return error if isinstance(error, dict) else {}
