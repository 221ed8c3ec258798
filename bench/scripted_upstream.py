"""An engine that costs nothing: a fixed reply to every request, whole, late or as a stream.

The request's body says how: `"bench_delay_ms": 1000` waits first; `"stream":true` streams `"bench_chunks": 100` chunks,
one each `"bench_pace_ms": 10` (0: as fast as the socket takes them). `python -m bench.scripted_upstream PORT`.
"""

import asyncio
import json
import re
import sys
from typing import cast

import uvloop

BACKLOG = 8192
PROMPT_IDS, RESPONSE_IDS = 512, 128
VERSIONS = json.dumps({"0": [["bench/1", 0, RESPONSE_IDS]]})
NUMBER = re.compile(rb'"bench_(delay_ms|chunks|pace_ms)": ?(\d+)')


def compact(fields: object) -> bytes:
    """JSON as vLLM writes it."""
    return json.dumps(fields, separators=(",", ":")).encode()


def completion() -> bytes:
    """A reply of about 14 kB in vLLM's shape."""
    content = [
        {"token": f"tok{i}", "logprob": -0.6931471824645996 - i / 97, "top_logprobs": []} for i in range(RESPONSE_IDS)
    ]
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "word " * RESPONSE_IDS * 5, "tool_calls": []},
        "logprobs": {"content": content},
        "finish_reason": "stop",
        "stop_reason": None,
        "token_ids": [1000 + 7 * i for i in range(RESPONSE_IDS)],
    }
    usage = {"prompt_tokens": PROMPT_IDS, "completion_tokens": RESPONSE_IDS, "total_tokens": PROMPT_IDS + RESPONSE_IDS}
    reply = {"id": "chatcmpl-bench", "object": "chat.completion", "created": 1, "model": "bench", "choices": [choice]}
    return compact({**reply, "usage": usage, "prompt_token_ids": [100 + i for i in range(PROMPT_IDS)]})


def chunk(number: int, last: bool) -> bytes:
    """One event of a stream in vLLM's shape, in chunked framing."""
    logprob = {"token": "tok", "logprob": -0.5 - number / 97, "bytes": [116], "top_logprobs": []}
    choice = {
        "index": 0,
        "delta": {"content": "word "},
        "logprobs": {"content": [logprob]},
        "finish_reason": "stop" if last else None,
        "token_ids": [1000 + number],
    }
    event = {
        "id": "chatcmpl-bench",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "bench",
        "choices": [choice],
    }
    if number == 0:
        event["prompt_token_ids"] = [100 + i for i in range(PROMPT_IDS)]
    data = b"data: " + compact(event) + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


BODY = completion()
HEAD = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-claw-weight-versions: {VERSIONS}\r\n"
WHOLE = HEAD.encode() + b"content-length: %d\r\n\r\n%b" % (len(BODY), BODY)
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
DONE = b"data: [DONE]\n\n"
STREAM_END = b"%x\r\n%b\r\n0\r\n\r\n" % (len(DONE), DONE)
CHUNKS = [chunk(number, last=False) for number in range(4096)]


class Engine(asyncio.Protocol):
    """One connection, one request at a time, `content-length` only."""

    def __init__(self) -> None:
        self._data = b""
        self._streaming: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, _error: Exception | None) -> None:
        if self._streaming:
            self._streaming.cancel()

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, end, body = self._data.partition(b"\r\n\r\n")
        if not end:
            return
        length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
        if len(body) >= (int(length[1]) if length else 0):
            self._data = b""
            self._answer(body)

    def _answer(self, body: bytes) -> None:
        asked = {name.decode(): int(number) for name, number in NUMBER.findall(body)}
        if re.search(rb'"stream": ?true', body):
            stream = self._stream(asked.get("chunks", 100), asked.get("pace_ms", 0) / 1000)
            self._streaming = asyncio.get_running_loop().create_task(stream)
        elif delay_ms := asked.get("delay_ms"):
            asyncio.get_running_loop().call_later(delay_ms / 1000, self._transport.write, WHOLE)
        else:
            self._transport.write(WHOLE)

    async def _stream(self, chunks: int, pace_s: float) -> None:
        self._transport.write(STREAM_HEAD)
        due_s = asyncio.get_running_loop().time()
        for number in range(chunks):
            self._transport.write(CHUNKS[number] if number < chunks - 1 else chunk(number, last=True))
            due_s += pace_s
            await asyncio.sleep(max(0.0, due_s - asyncio.get_running_loop().time()))
        self._transport.write(STREAM_END)


async def main(port: int) -> None:
    """Answer until killed."""
    server = await asyncio.get_running_loop().create_server(Engine, "127.0.0.1", port, backlog=BACKLOG)
    print("listening", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
