"""The client for engines: one HTTP exchange, with deadlines, and errors of three kinds.

Invariant: cancelling an exchange closes its connection, and the engine then aborts the generation. Nothing of the
client's request but the body and the named headers is sent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType

import aiohttp

from gateway.errors import UpstreamBroken, UpstreamTimeout, UpstreamUnreachable
from gateway.spans import HEADER as SPANS_HEADER

KEEPALIVE_S = 3.0  # below uvicorn's 5 s: a connection that the engine is just closing would look like a broken engine


@dataclass(frozen=True, slots=True)
class UpstreamReply:
    """What an engine answered."""

    status: int
    body: bytes
    spans: str | None
    retry_after: str | None


class HttpUpstream:
    """HTTP connections to engines, pooled. An async context manager."""

    def __init__(self, connect_timeout_s: float, timeout_s: float, reply_bytes_max: int) -> None:
        self._timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=connect_timeout_s)
        self._reply_bytes_max = reply_bytes_max
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "HttpUpstream":
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=self._timeout,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> UpstreamReply:
        """Send a body and read the whole reply.

        Raises UpstreamUnreachable (the engine never had it), UpstreamBroken (it may have had it) or UpstreamTimeout.
        """
        return await self._exchange("POST", url, body, headers)

    async def get(self, url: str, headers: Mapping[str, str]) -> UpstreamReply:
        """As `post`, without a body."""
        return await self._exchange("GET", url, None, headers)

    async def _exchange(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> UpstreamReply:
        if self._session is None:
            raise RuntimeError("the upstream client is used outside its context")
        try:
            async with self._session.request(
                method, url, data=body, headers=headers, allow_redirects=False
            ) as response:
                content = await self._read(response)
                return UpstreamReply(
                    response.status, content, response.headers.get(SPANS_HEADER), response.headers.get("Retry-After")
                )
        except aiohttp.ClientConnectorError as refused:
            raise UpstreamUnreachable(f"the engine does not accept connections: {refused.strerror}") from refused
        except aiohttp.ConnectionTimeoutError as silent:
            raise UpstreamUnreachable("the engine does not accept connections in time") from silent
        except TimeoutError as late:
            raise UpstreamTimeout(f"the engine did not answer within {self._timeout.total:g} s") from late
        except (aiohttp.ClientError, OSError) as broken:
            raise UpstreamBroken(f"the connection to the engine broke: {type(broken).__name__}") from broken

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        if response.content_length is not None and response.content_length <= self._reply_bytes_max:
            return await response.read()
        content = bytearray()
        async for chunk in response.content.iter_any():
            content += chunk
            if len(content) > self._reply_bytes_max:
                raise UpstreamBroken(
                    f"the engine's reply is over {self._reply_bytes_max} bytes", code="upstream_reply_too_large"
                )
        return bytes(content)
