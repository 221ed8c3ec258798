"""The guard before an engine's routes."""

from typing import Any

import pytest

from claw_r1.rollout.plugin.guard import ControlGuard

Message = dict[str, Any]


async def answered(secret: str, path: str, headers: list[tuple[bytes, bytes]], kind: str = "http") -> object:
    """Status, or type of the message for a websocket, that a guarded app gives."""
    sent: list[Message] = []

    async def app(scope: Message, receive: object, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: Message) -> None:
        sent.append(message)

    await ControlGuard(app, secret)({"type": kind, "path": path, "headers": headers}, None, send)  # type: ignore[arg-type]  # a wrong or a partial argument is the case
    return sent[0].get("status", sent[0]["type"])


@pytest.mark.parametrize(
    ("secret", "path", "given", "expected"),
    [
        ("s", "/pause", b"s", 200),
        ("s", "/pause", b"t", 404),
        ("s", "/pause", None, 404),
        ("", "/pause", b"", 404),
        ("", "/pause", None, 404),
        ("s", "/v1/chat/completions", None, 200),
        ("s", "/v1/chat/completions/render", None, 404),
        ("s", "/inference/v1/abort_requests", None, 404),
    ],
)
async def test_the_guard_fails_closed(secret: str, path: str, given: bytes | None, expected: int) -> None:
    """Only an exact path of the allow-list, or the right and non-empty secret, gets through."""
    headers = [] if given is None else [(b"x-claw-control", given)]
    assert await answered(secret, path, headers) == expected


async def test_a_websocket_is_closed() -> None:
    """The guard refuses websockets in their own words."""
    assert await answered("s", "/v1/realtime", [], "websocket") == "websocket.close"
