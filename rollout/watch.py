"""Watches a running engine. Its answers go into the report; a dead or hung engine raises EngineLost."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from claw_r1.rollout.engine_client import EngineClient, EngineInfo
from claw_r1.rollout.errors import EngineLost
from claw_r1.rollout.process.activity import Activity, StartPatience
from claw_r1.rollout.settings import RolloutSettings

STARTING_POLL_S = 0.5
DRAINING_POLL_S = 0.1
QUIET_S = 0.5


class EngineWatch:
    """The engine behind one server, from its first healthy answer to its last reply."""

    def __init__(
        self, settings: RolloutSettings, engine: EngineClient, on_info: Callable[[EngineInfo], object]
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._on_info = on_info
        self._loads = 0
        self._is_loading = False

    @contextmanager
    def loading(self) -> Iterator[None]:
        """A load may take as long as its own deadlines say: while it runs, the engine answers nothing and is no hang."""
        self._loads, self._is_loading = self._loads + 1, True
        try:
            yield
        finally:
            self._is_loading = False

    async def healthy(self, activity: Callable[[], Activity]) -> None:
        """Until the first healthy answer. `activity`: what vLLM has done so far. Raises ServerDied."""
        patience = StartPatience(self._settings, time.monotonic())
        while not await self._engine.is_healthy():
            patience.look(activity(), time.monotonic())
            await asyncio.sleep(STARTING_POLL_S)

    async def server(self) -> None:
        """vLLM's own word: it refuses at once when its engine process is gone."""
        while True:
            await asyncio.sleep(self._settings.health_interval_s)
            if not await self._engine.is_healthy():
                raise EngineLost("vLLM is not healthy")

    async def engine(self) -> None:
        """The engine's own answer: it shows a hang."""
        while True:
            await asyncio.sleep(self._settings.health_interval_s)
            loads = self._loads
            try:
                self._on_info(await self._engine.info())
            except EngineLost:
                if loads == self._loads and not self._is_loading:
                    raise

    async def drained(self) -> None:
        """Until no reply has run for `QUIET_S`, the engine is gone, or the time for it is over.

        Gateways that have just heard of the drain may have calls on their way.
        """
        ends_at = time.monotonic() + self._settings.drain_timeout_s
        quiet_since = None
        while (now := time.monotonic()) < ends_at:
            try:
                info = await self._engine.info()
            except EngineLost:
                return
            self._on_info(info)
            quiet_since = None if info.in_flight else now if quiet_since is None else quiet_since
            if quiet_since is not None and now - quiet_since >= QUIET_S:
                return
            await asyncio.sleep(DRAINING_POLL_S)
