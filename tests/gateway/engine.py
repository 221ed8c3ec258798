"""A scripted engine: speaks just enough HTTP to answer, refuse, hang, break and lie like the servers behind a gateway."""

import asyncio
import contextlib
import json
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Received:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        parsed: Json = json.loads(self.body)
        return parsed


@dataclass(frozen=True)
class Reply:
    """What to answer. `hang`: never; `reset`: break the connection after reading the request."""

    body: Json | bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    hang: bool = False
    reset: bool = False
    delay_s: float = 0.0


Action = Callable[[Received], Reply]


def completion(asked: Json, *, ids: list[int] | None = None, versions: str = "run/3", text: str = "hello") -> Reply:
    """The reply of a vLLM worker with the spans plugin: `n` choices of these ids, all sampled by one version."""
    sampled = [11, 12, 2] if ids is None else ids
    count = asked.get("n") or 1
    wants_ids = asked.get("return_token_ids")
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": f"{text}{index}", "tool_calls": []},
            "logprobs": {"content": [{"token": "t", "logprob": -0.5 - index, "top_logprobs": []} for _ in sampled]}
            if asked.get("logprobs")
            else None,
            "finish_reason": "stop",
            "stop_reason": None,
            **({"token_ids": sampled} if wants_ids else {}),
        }
        for index in range(count)
    ]
    body: Json = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": asked.get("model") or "tiny",
        "choices": choices,
        "usage": {"prompt_tokens": 4, "completion_tokens": count * len(sampled), "total_tokens": 4 + len(sampled)},
        **({"prompt_token_ids": [1, 5, 6, 7]} if wants_ids else {}),
    }
    spans = {str(index): [[versions, 0, len(sampled)]] for index in range(count)}
    return Reply(body, headers={"x-claw-weight-versions": json.dumps(spans)} if versions else {})


def answer(received: Received) -> Reply:
    """The default: a good completion, or the list of models."""
    if received.path.endswith("/models"):
        return Reply({"object": "list", "data": [{"id": "tiny", "object": "model", "created": 0, "owned_by": "e"}]})
    return completion(received.json)


class ScriptedEngine:
    """Answers by `script` while it lasts, then by `default`. Runs in a thread of its own."""

    def __init__(self, default: Action = answer) -> None:
        self.default = default
        self.script: deque[Action] = deque()
        self.requests: list[Received] = []
        self.aborted = threading.Event()
        """Set when a client left while its request hung."""
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> "ScriptedEngine":
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop
        ).result(5)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def then(self, *replies: Reply) -> None:
        """Answer the next requests with these."""
        self.script.extend(lambda _, reply=reply: reply for reply in replies)  # type: ignore[misc]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while await self._exchange(reader, writer):
                pass
        writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        received = await _read(reader)
        self.requests.append(received)
        reply = (self.script.popleft() if self.script else self.default)(received)
        if reply.hang:
            await reader.read()
            self.aborted.set()
            return False
        if reply.reset:
            writer.transport.abort()
            return False
        await asyncio.sleep(reply.delay_s)
        body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        head = {"content-type": "application/json", "content-length": str(len(body)), **reply.headers}
        lines = [f"HTTP/1.1 {reply.status} X", *(f"{name}: {value}" for name, value in head.items()), "", ""]
        writer.write("\r\n".join(lines).encode() + body)
        await writer.drain()
        return True


async def _read(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(head[0].split(" ")[1], headers, body)
