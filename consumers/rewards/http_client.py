"""JSON over HTTP for scorers that ask a server: tried again while that can help, and a word for whatever went wrong.

Invariant: `post_json` ends by its deadline, with the server's JSON or with `GaveUp`; nothing that a server answers raises
anything else. One event loop in a thread of its own serves all requests of a slot, so its caller may be plain threads.

Reasons: `unavailable` (refused connection, 429, 5xx but 501, until the deadline; a last try that is cut by it does not hide what was heard
before), `deadline` (nothing was heard by then), `refused` (another status: `Refused` with status and body), `not_json`, `too_large`,
`unreadable` (what we would have to send is no Unicode).
"""

import asyncio
import json
import random
import threading
import time
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import aiohttp
import orjson

from claw_r1.consumers.rewards.scorer import GaveUp

T = TypeVar("T")

AGAIN = frozenset({408, 409, 425, 429, *range(500, 600)}) - {501}
"""Statuses after which the same request may succeed, a proxy's own (520 to 527) among them. 501: the server has no such
thing."""
PAUSE_FIRST_S, PAUSE_MAX_S = 0.1, 5.0
ANSWER_BYTES_MAX = 64 << 20
ODD = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError)
"""The errors of reading JSON that others wrote, where it has another form than it should."""


class Refused(GaveUp):
    """The server refuses this request (a 4xx); a kind may give a better reason."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__("refused", f"HTTP {status}: {body:.300}")
        self.status, self.body = status, body


class HttpClient:
    """Connections of one slot. Made, used and closed by its thread; its coroutines run on the client's loop."""

    def __init__(self, connections_max: int = 64) -> None:
        self._connections_max = connections_max
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="claw-rewards-http", daemon=True)
        self._thread.start()
        self._session = asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Starts a coroutine on the loop; its result or exception comes by the future."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def post_json(
        self,
        url: str,
        body: Mapping[str, Any],
        headers: Mapping[str, str],
        deadline_s: float,
        trouble: GaveUp | None = None,
    ) -> tuple[Any, Mapping[str, str]]:
        """The answer's JSON (NaN and Infinity are let through) and its headers; on the loop only.

        deadline_s: by `time.monotonic()`. trouble: what was heard before, raised where nothing more is. Raises GaveUp.
        """
        try:
            content = orjson.dumps(body)
        except TypeError as error:
            raise GaveUp("unreadable", f"the request cannot be written as JSON: {error}") from error
        headers = {"content-type": "application/json", **headers}
        tries = 0
        while True:
            try:
                async with (
                    asyncio.timeout_at(deadline_s),
                    # A redirect is refused: conversations and keys go where the settings say.
                    self._session.post(url, data=content, headers=headers, allow_redirects=False) as reply,
                ):
                    if reply.status not in AGAIN:
                        return await _answer(reply), reply.headers
                    detail = (await _read(reply)).decode(errors="replace")
                    trouble = GaveUp("unavailable", f"{url}: HTTP {reply.status}: {detail:.300}")
                    least_s = _retry_after_s(reply.headers)
            except TimeoutError as error:
                raise trouble or GaveUp("deadline", f"{url} did not answer in time") from error
            except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: a URL or header that is none
                trouble = GaveUp("unavailable", f"{url}: {str(error) or type(error).__name__:.300}")
                least_s = 0.0
            pause_s = max(least_s, _pause_s(tries))
            if time.monotonic() + pause_s >= deadline_s:
                raise trouble
            await asyncio.sleep(pause_s)
            tries += 1

    def close(self) -> None:
        """Ends what is under way (its futures are cancelled), the connections and the thread. Idempotent."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _open(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(limit=self._connections_max)
        return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout())

    async def _shut(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._session.close()


async def _answer(response: aiohttp.ClientResponse) -> Any:
    content = await _read(response)
    if response.status >= 300:
        raise Refused(response.status, content.decode(errors="replace"))
    try:
        answer = json.loads(content.decode("utf-8-sig"))
        if b"\\u" in content:  # of a pair of these one alone is no character, and nothing that we write may hold it
            answer = json.loads(json.dumps(answer, ensure_ascii=False).encode(errors="replace"))
        return answer
    except (ValueError, RecursionError) as error:
        raise GaveUp("not_json", f"{response.url} answered: {content.decode(errors='replace'):.300}") from error


async def _read(response: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    async for piece in response.content.iter_any():
        content += piece
        if len(content) > ANSWER_BYTES_MAX:
            raise GaveUp("too_large", f"{response.url} answered with more than {ANSWER_BYTES_MAX >> 20} MiB")
    return bytes(content)


def _pause_s(tries: int) -> float:
    """Half of it by chance: workers that were refused together do not come back together."""
    chance = random.uniform(0.5, 1.0)  # noqa: S311  # no secret
    return min(PAUSE_FIRST_S * 2.0 ** min(tries, 10), PAUSE_MAX_S) * chance


def _retry_after_s(headers: Mapping[str, str]) -> float:
    """Returns the delay that the server asks for, in seconds or as a date; else 0."""
    value = headers.get("retry-after", "")
    with suppress(ValueError):
        seconds = float(value)
        return seconds if 0 <= seconds < float("inf") else 0.0
    with suppress(*ODD):
        date = parsedate_to_datetime(value)
        return max(0.0, (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
    return 0.0
