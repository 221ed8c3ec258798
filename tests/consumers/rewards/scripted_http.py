"""An HTTP server that answers as a test says."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import web

Answerer = Callable[[int], web.StreamResponse | float]
"""From the number of the request (from 0) to its answer, or to how many seconds it hangs."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What came, and when."""

    path: str
    headers: Mapping[str, str]
    body: Any
    at_s: float


@contextmanager
def serving(answer: Answerer) -> Iterator[tuple[str, list[HttpRequest]]]:
    """A server on a free port; its URL, and the requests as they come."""
    loop, requests = asyncio.new_event_loop(), list[HttpRequest]()

    async def handle(request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        requests.append(
            HttpRequest(
                request.path, {name.lower(): value for name, value in request.headers.items()}, body, time.monotonic()
            )
        )
        reply = answer(len(requests) - 1)
        if isinstance(reply, float):
            await asyncio.sleep(reply)
            return web.Response()
        return reply

    async def start() -> tuple[web.AppRunner, int]:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/{path:.*}", handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return runner, runner.addresses[0][1]

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    runner, port = asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield f"http://127.0.0.1:{port}/", requests
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
