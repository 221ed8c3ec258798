"""An engine that is a script: vLLM's control routes, in a test's process or in one of their own, `scripted_vllm PORT`."""

import asyncio
import sys
from collections.abc import Awaitable, Callable

from aiohttp import web

from tests.rollout import holds

RIGHT_SCORE = -1.0
INFO = {"capabilities": ["tokens_json"], "kv_usage": 0.25, "seconds": {"idle": 1.0}}


class ScriptedVllm:
    """vLLM's control routes. While it loads, its engine answers nothing: `/claw/info` waits, as the real one's does."""

    def __init__(self, load_s: float = 0.0) -> None:
        self.load_s = load_s
        self.load: Callable[[], Awaitable[object]] = lambda: asyncio.sleep(self.load_s)
        """Ends when a load does; a test that waits for more than time puts its own here."""
        self.labels: list[str] = []
        self.updates = 0
        """How often weights were loaded."""
        self.on_finish: Callable[[], object] = lambda: None
        """Called at the end of each update, while the engine is paused."""
        self.unloadable: set[str] = set()
        """Digests of versions with which the engine ends."""
        self.score = RIGHT_SCORE
        """The log-probability that it gives each token of a prompt."""
        self.in_flight = 0
        self.looks = 0
        """How often the supervisor asked how the engine is."""
        self.given_up = 0
        """How often it did not wait for the answer."""
        self.is_paused = False
        self.hangs = False
        self.is_healthy = True
        self.control_requests: list[str] = []
        self._busy = asyncio.Lock()

    def app(self) -> web.Application:
        app = web.Application()
        for path in ("/pause", "/start_weight_update", "/resume", "/update_weight_version"):
            app.router.add_post(path, self._step)
        app.router.add_post("/update_weights", self._update)
        app.router.add_post("/finish_weight_update", self._finish)
        app.router.add_get("/claw/info", self._info)
        app.router.add_post("/v1/completions", self._score)
        app.router.add_get("/health", self._health)
        return app

    async def _step(self, request: web.Request) -> web.Response:
        self.is_paused = {"/pause": True, "/resume": False}.get(request.path, self.is_paused)
        return web.json_response({})

    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response({}, status=200 if self.is_healthy else 503)

    async def _update(self, request: web.Request) -> web.Response:
        digest = (await request.json())["update_info"]["manifest"]["digest"]
        self.updates += 1
        async with self._busy:
            await self.load()
        return web.json_response({}, status=500 if digest in self.unloadable else 200)

    async def _finish(self, request: web.Request) -> web.Response:
        self.labels.append((await request.json())["weight_version"])
        self.on_finish()
        return web.json_response({})

    async def _score(self, request: web.Request) -> web.Response:
        _, *ids = (await request.json())["prompt"]
        scores = [{str(token): {"logprob": self.score}} for token in ids]
        return web.json_response({"choices": [{"prompt_logprobs": [None, *scores]}]})

    async def _info(self, request: web.Request) -> web.Response:
        while self.hangs or self._busy.locked():
            await asyncio.sleep(0.01)
            if request.transport is None or request.transport.is_closing():
                self.given_up += 1
                return web.Response()
        async with self._busy:
            self.looks += 1
            requests, self.control_requests = self.control_requests, []
            return web.json_response({**INFO, "in_flight": self.in_flight, "control_requests": requests})


async def _named() -> None:
    """The copy has its name, and the engine is told to load it."""
    holds.meet("named")


if __name__ == "__main__":
    engine = ScriptedVllm()
    engine.load = _named
    web.run_app(engine.app(), host="127.0.0.1", port=int(sys.argv[1]), print=None)
