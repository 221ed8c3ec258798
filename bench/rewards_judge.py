"""A server of chat completions in a process of its own, which says 0.5 to everything: an engine whose CPU is not the judge's."""

import asyncio
import contextlib
import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection

import orjson
from aiohttp import web


@contextlib.contextmanager
def scripted_judge() -> Iterator[str]:
    """Its URL, while the block lasts."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join(10)


def _serve(peer: Connection) -> None:
    reply = {
        "id": "bench",
        "model": "bench",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "0.5"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 200, "completion_tokens": 2},
    }
    body = orjson.dumps(reply)

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=body, content_type="application/json")

    async def run() -> None:
        app = web.Application()
        app.router.add_post("/{path:.*}", answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        peer.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(run())
