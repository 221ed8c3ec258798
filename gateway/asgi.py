"""The few ASGI moves that model calls need: read a body within a limit, notice a client that leaves, answer."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive, Scope, Send

from gateway.errors import BodyTooLarge, ClientGone, ErrorReply, HeaderList

T = TypeVar("T")


async def read_body(scope: Scope, receive: Receive, bytes_max: int) -> bytes:
    """The whole request body. Raises BodyTooLarge, before reading where the length is declared, or ClientGone."""
    declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    if int(declared) > bytes_max:
        raise _too_large(bytes_max)
    message = await receive()
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        body = await _read_on(body, receive, bytes_max)
    elif message["type"] == "http.disconnect":
        raise ClientGone
    if len(body) > bytes_max:
        raise _too_large(bytes_max)
    return body


async def _read_on(first: bytes, receive: Receive, bytes_max: int) -> bytes:
    content = bytearray(first)
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        content += message.get("body", b"")
        if len(content) > bytes_max:
            raise _too_large(bytes_max)
        more = message.get("more_body", False)
    return bytes(content)


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client disconnects first: then ClientGone, once it has ended."""
    here = asyncio.current_task()
    assert here is not None
    watcher = asyncio.ensure_future(_cancel_when_gone(receive, here))
    try:
        return await work
    except asyncio.CancelledError:
        if not (watcher.done() and not watcher.cancelled()):
            raise  # somebody else's wish
        here.uncancel()
        raise ClientGone from None
    finally:
        watcher.cancel()


async def _cancel_when_gone(receive: Receive, task: "asyncio.Task[Any]") -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    task.cancel()


async def send_reply(send: Send, status: int, headers: HeaderList, body: bytes) -> None:
    """One whole reply."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


async def send_error(send: Send, error: ErrorReply) -> None:
    """An error as its reply."""
    await send_reply(send, error.status, error.headers, error.body)


def _too_large(bytes_max: int) -> BodyTooLarge:
    return BodyTooLarge(f"the body is over {bytes_max} bytes")
