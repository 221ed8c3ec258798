"""The plugin's ASGI parts without an engine."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from rollout.plugin import span_record
from rollout.plugin.guard import ControlGuard
from rollout.plugin.occupancy import Occupancy
from rollout.plugin.spans import VersionSpans
from rollout.plugin.wishes import Wishes
from weights.sources import SECRET_VARIABLE

Message = dict[str, Any]


async def answered(secret: str, path: str, headers: list[tuple[bytes, bytes]], kind: str = "http") -> object:
    """Status, or type of the message for a websocket, that a guarded app gives."""
    sent: list[Message] = []

    async def app(scope: Message, receive: object, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: Message) -> None:
        sent.append(message)

    await ControlGuard(app, secret)({"type": kind, "path": path, "headers": headers}, None, send)  # type: ignore[arg-type]
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


class Engine:
    """Yields one finished choice per call, with a span of one token; notes whether it was closed."""

    def __init__(self) -> None:
        self.closed = 0

    async def generate(self, prompt: str, sampling_params: Any, request_id: str) -> AsyncIterator[Any]:
        span = SimpleNamespace(version=f"label {prompt}", start=0, end=1)
        try:
            for index in range(sampling_params.n):
                choice = SimpleNamespace(index=index, finish_reason="stop", weight_versions=[span])
                yield SimpleNamespace(outputs=[choice])
        finally:
            self.closed += 1


async def replied(chunks: list[bytes], *, stream: bool, prompts: list[str], n: int = 1) -> list[Message]:
    """What a client gets from an app that asks the engine first and then sends these chunks."""
    engine, sent = Engine(), []
    span_record.tap_engine(engine)

    async def app(scope: Message, receive: object, send: Any) -> None:
        for prompt in prompts:
            async for _ in engine.generate(prompt, SimpleNamespace(n=n), "id"):
                pass
        kind = b"text/event-stream" if stream else b"application/json"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def send(message: Message) -> None:
        sent.append(message)

    await VersionSpans(app)({"type": "http", "path": "/v1/completions", "headers": []}, None, send)  # type: ignore[arg-type]
    assert engine.closed == len(prompts)
    return sent


async def test_several_prompts_number_their_choices_in_one_row() -> None:
    """Two prompts with n = 2 make choices 0 to 3, as the OpenAI format numbers them."""
    start, _ = await replied([b"{}"], stream=False, prompts=["a", "b"], n=2)
    spans = dict(start["headers"])[b"x-claw-weight-versions"]
    assert spans == b'{"0":[["label a",0,1]],"1":[["label a",0,1]],"2":[["label b",0,1]],"3":[["label b",0,1]]}'


async def test_a_comment_is_never_put_inside_an_event() -> None:
    """Spans wait for the next event boundary when a chunk continues a half-written event."""
    sent = await replied([b"continued\n\n", b"data: [DONE]\n\n"], stream=True, prompts=["a"])
    assert sent[1]["body"] == b"continued\n\n"
    assert sent[2]["body"] == b': claw.weight_versions={"0":[["label a",0,1]]}\n\ndata: [DONE]\n\n'


async def test_a_reply_without_a_call_has_no_spans() -> None:
    """An error reply, for example, carries no header: unknown is not base/0."""
    start, _ = await replied([b"{}"], stream=False, prompts=[])
    assert b"x-claw-weight-versions" not in dict(start["headers"])


def test_each_second_counts_once() -> None:
    """Serving while a call is in it, idle while none is, paused while weights change, whoever waits meanwhile."""
    now = [0.0]
    occupancy = Occupancy(lambda: now[0])
    steps = [
        (1.0, occupancy.enter),
        (2.0, occupancy.enter),
        (4.0, lambda: occupancy.pause(True)),
        (8.0, occupancy.leave),
        (16.0, lambda: occupancy.pause(False)),
        (32.0, occupancy.leave),
        (64.0, lambda: None),
    ]
    for seconds, step in steps:
        now[0] += seconds
        step()
    assert occupancy.seconds() == {"idle": 65.0, "serving": 38.0, "paused": 24.0}
    assert sum(occupancy.seconds().values()) == now[0]


def control(secret: str, monkeypatch: pytest.MonkeyPatch, client: tuple[str, int]) -> TestClient:
    """A client of the routes by which people ask, where both sides may have a secret."""
    monkeypatch.setenv(SECRET_VARIABLE, secret)
    app = FastAPI()
    wishes = Wishes()
    wishes.attach(app)
    app.state.wishes = wishes
    return TestClient(app, client=client)


@pytest.mark.parametrize(
    ("secret", "header", "host", "status"),
    [
        ("", "", "127.0.0.1", 202),
        ("", "", "203.0.113.1", 401),
        ("s", "Bearer s", "203.0.113.1", 202),
        ("s", "Bearer t", "127.0.0.1", 401),
        ("s", "", "127.0.0.1", 401),
    ],
)
def test_who_knows_the_secret_may_ask(
    monkeypatch: pytest.MonkeyPatch, secret: str, header: str, host: str, status: int
) -> None:
    """Where no secret is set, this host may; a wish is taken once."""
    client = control(secret, monkeypatch, (host, 1))
    for path in ("/claw/probe", "/claw/drain", "/claw/probe"):
        reply = client.post(path, headers={"authorization": header})
        assert reply.status_code == status
        assert (reply.json() == {"accepted": True}) == (status == 202)
    wishes = client.app.state.wishes  # type: ignore[attr-defined]  # starlette types it as any ASGI app
    assert wishes.take() == (["probe", "drain"] if status == 202 else [])
    assert wishes.take() == []
