"""A scripted engine: speaks just enough HTTP to answer, refuse, hang, break and lie like the servers behind a gateway."""

import asyncio
import contextlib
import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from claw_r1.schemas.http import TOKENS_HEADER
from tests.gateway.packed import choice, comment, generation, member
from tests.patience import until_async

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
    """What to answer, once `moment` is set where there is one. `hang`: never; `reset`: break the connection after reading the request.

    `pieces` makes it a stream, each piece sent by itself, `pace_s` apart; then `hang`, `moment` and `reset` come after the last one.
    """

    body: Json | bytes = b""
    pieces: tuple[bytes, ...] = ()
    pace_s: float = 0.0
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    hang: bool = False
    reset: bool = False
    moment: threading.Event | None = None
    delay_s: float = 0.0


Action = Callable[[Received], Reply]


def whole(body: Json | bytes, *generations: Json) -> Reply:
    """A JSON reply, and what was generated for it."""
    plain = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
    ours = member(*generations)
    return Reply(plain[:-1] + ours + b"}", headers={TOKENS_HEADER: str(len(ours))})


def sampled_by(asked: Json, responses: Sequence[Json]) -> Json:
    """The generation of these responses, under the parameters that were asked for."""
    used = {name: asked[name] for name in ("temperature", "top_p", "n", "seed") if asked.get(name) is not None}
    return generation(*responses, **used)


def spans(versions: str, length: int) -> list[Json]:
    """All of a response by one version; none where it is empty."""
    return [[versions, 0, length]] if versions and length else []  # type: ignore[list-item]  # a row of JSON


def completion(asked: Json, *, ids: list[int] | None = None, versions: str = "run/3", text: str = "hello") -> Reply:
    """The reply of a worker: `n` choices of these ids, all sampled by one version."""
    body, made = written(asked, ids=ids, versions=versions, text=text)
    return whole(body, made)


def written(
    asked: Json, *, ids: list[int] | None = None, versions: str = "run/3", text: str = "hello"
) -> tuple[Json, Json]:
    """A completion as vLLM writes it, and what was generated for it."""
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
    responses = [
        choice(sampled, [-0.5 - index] * len(sampled), spans=spans(versions, len(sampled))) for index in range(count)
    ]
    return body, sampled_by(asked, responses)


def chunk(content: str = "", ids: list[int] | None = None, *, asked: Json, **more: Any) -> bytes:
    """One event of a stream, as vLLM writes it. `more`: fields of its choice; `delta`, `top` replace or add."""
    made = {
        "index": more.pop("index", 0),
        "delta": more.pop("delta", {"content": content}),
        "logprobs": {
            "content": [{"token": "}", "logprob": -0.5, "bytes": [125], "top_logprobs": []} for _ in ids or ()]
        }
        if asked.get("logprobs") and ids is not None
        else None,
        "finish_reason": None,
        **({"token_ids": ids} if asked.get("return_token_ids") and ids is not None else {}),
    }
    top = more.pop("top", {})
    body = {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "tiny",
        "choices": [{**made, **more}],
    }
    return b"data: " + json.dumps({**body, **top}, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"


def stream(asked: Json, *, words: tuple[str, ...] = ("he", "llo", "!"), versions: str = "run/3", **how: Any) -> Reply:
    """The stream of a worker: one token per word, `n` choices in turn."""
    choices = range(asked.get("n") or 1)
    prompt = {"prompt_token_ids": [1, 5, 6, 7]} if asked.get("return_token_ids") else {}
    events = [
        chunk(asked=asked, index=index, delta={"role": "assistant", "content": ""}, top=prompt if index == 0 else {})
        for index in choices
    ]
    for number, word in enumerate(words, 1):
        last = {"finish_reason": "stop", "stop_reason": None} if number == len(words) else {}
        events += [chunk(word, [10 * index + number], asked=asked, index=index, **last) for index in choices]
    if (asked.get("stream_options") or {}).get("include_usage"):
        usage = {"prompt_tokens": 4, "completion_tokens": len(words) * len(choices), "total_tokens": 9}
        body = {
            "id": "c",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "tiny",
            "choices": [],
            "usage": usage,
        }
        events.append(b"data: " + json.dumps(body).encode() + b"\n\n")
    lengths = range(1, len(words) + 1)
    responses = [
        choice([10 * index + n for n in lengths], [-0.5] * len(words), spans=spans(versions, len(words)))
        for index in choices
    ]
    return Reply(pieces=(*events, comment(sampled_by(asked, responses)), b"data: [DONE]\n\n"), **how)


def answer(received: Received) -> Reply:
    """The default: a good completion, streamed where asked for, or the list of models."""
    if received.path.endswith("/models"):
        return Reply({"object": "list", "data": [{"id": "tiny", "object": "model", "created": 0, "owned_by": "e"}]})
    return stream(received.json) if received.json.get("stream") else completion(received.json)


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
        self.script.extend(lambda _, reply=reply: reply for reply in replies)  # type: ignore[misc]  # a lambda with a default

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while await self._exchange(reader, writer):
                pass
        writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        received = await _read(reader)
        self.requests.append(received)
        reply = (self.script.popleft() if self.script else self.default)(received)
        try:
            if reply.pieces:
                await _send_stream(writer, reply)
            if reply.hang:
                await reader.read()
                return False
        finally:  # the connection may end while the pieces are being sent
            if reply.hang:
                self.aborted.set()
        if reply.moment is not None:
            await until_async(reply.moment.is_set)
        if reply.reset:
            writer.transport.abort()
            return False
        if reply.pieces:
            writer.write(b"0\r\n\r\n")
            return True
        await asyncio.sleep(reply.delay_s)
        body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        head = {"content-type": "application/json", "content-length": str(len(body)), **reply.headers}
        lines = [f"HTTP/1.1 {reply.status} X", *(f"{name}: {value}" for name, value in head.items()), "", ""]
        writer.write("\r\n".join(lines).encode() + body)
        await writer.drain()
        return True


async def _send_stream(writer: asyncio.StreamWriter, reply: Reply) -> None:
    head = {"content-type": "text/event-stream; charset=utf-8", "transfer-encoding": "chunked", **reply.headers}
    lines = [f"HTTP/1.1 {reply.status} X", *(f"{name}: {value}" for name, value in head.items()), "", ""]
    writer.write("\r\n".join(lines).encode())
    for piece in reply.pieces:
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        await writer.drain()
        await asyncio.sleep(reply.pace_s)


async def _read(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(head[0].split(" ")[1], headers, body)
