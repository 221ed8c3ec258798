"""The few ASGI moves of requests that are no model calls: read a body within a limit, answer."""

from starlette.types import Receive, Scope, Send

from gateway.errors import ClientGone, ErrorReply, HeaderList
from gateway.http.exchange import too_large


async def read_body(scope: Scope, receive: Receive, bytes_max: int) -> bytes:
    """The whole request body. Raises BodyTooLarge, before reading where the length is declared, or ClientGone."""
    declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    if int(declared) > bytes_max:
        raise too_large(bytes_max)
    content, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        content += message.get("body", b"")
        if len(content) > bytes_max:
            raise too_large(bytes_max)
        more = message.get("more_body", False)
    return bytes(content)


async def send_reply(send: Send, status: int, headers: HeaderList, body: bytes) -> None:
    """One whole reply."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


async def send_error(send: Send, error: ErrorReply) -> None:
    """An error as its reply."""
    await send_reply(send, error.status, error.headers, error.body)
