"""Keeps one vLLM server alive and current. Kafka can stall, the trainer can die, vLLM can die: none stalls the others.

input     claw.weights, from the beginning (few, small records): the latest version of this model (and run) wins
output    claw.rollout.workers, key worker_id: WorkerReported
delivery  a report is true when it is made: `ready` and `version` only after the label of the loaded weights is set
replay    reading claw.weights again changes nothing: a version that is loaded is not loaded again
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Protocol

import aiohttp
import structlog

from rollout.engine_client import EngineClient
from rollout.errors import EngineLost, RolloutError, ServerDied, SourceFailed
from rollout.fetch import Fetched, fetch
from rollout.reporter import Reporter, ReportSink
from rollout.server import VllmServer
from rollout.settings import RolloutSettings
from rollout.sync import load
from rollout.targets import Targets, is_same_weights
from schemas.events import WeightsPublished, WorkerState
from schemas.http import BASE_LABEL
from schemas.runtime.restarts import Deaths, RestartBudget

log = structlog.get_logger()

STARTING_POLL_S = 0.2
DRAINING_POLL_S = 0.1


class WeightsFeed(Protocol):
    """Published versions, oldest first."""

    async def run(self, on_event: Callable[[WeightsPublished], None], caught_up: asyncio.Event) -> None:
        """Deliver for ever; set `caught_up` once everything published before the start is delivered."""
        ...


class Supervisor:
    """One worker. `run` ends when it is told to, or raises a RolloutError or the feed's error."""

    def __init__(
        self,
        settings: RolloutSettings,
        http: aiohttp.ClientSession,
        server: VllmServer,
        feed: WeightsFeed,
        sink: ReportSink,
    ) -> None:
        self._settings = settings
        self._http = http
        self._server = server
        self._feed = feed
        self._targets = Targets(settings.model_id, settings.run_id)
        self._reporter = Reporter(settings, server.url, sink)
        self._engine: EngineClient | None = None
        self._updates = 0
        self._fetched: Fetched | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set; every process of the server is gone when this returns or raises."""
        reporting = asyncio.create_task(self._reporter.run())
        follow = self._feed.run(self._targets.consider, self._targets.caught_up)
        try:
            await _first_of(stop.wait(), follow, self._keep_serving())
            self._reporter.change(state="draining")
            await self._drain()
        finally:
            await self._server.stop()
            self._keep(None)
            reporting.cancel()
            self._reporter.change(state="dead")
            await self._reporter.report_now()

    async def _keep_serving(self) -> None:
        deaths = Deaths(RestartBudget(self._settings.restarts_max, self._settings.restart_window_s, delay_s=0.0))
        while True:
            try:
                await self._serve_once()
            except (ServerDied, EngineLost) as error:
                log.error("vllm_lost", error=str(error))
                self._engine = None
                self._reporter.change(state="starting", loaded=None, in_flight=0, detail=str(error)[:500])
                await self._server.stop(politely=False)
                if deaths.restart_delay_s(time.monotonic()) is None:
                    raise RolloutError(f"vLLM was restarted {self._settings.restarts_max} times: {error}") from error

    async def _serve_once(self) -> None:
        """From a new server to its end, which is always an error."""
        await self._server.start()
        engine = EngineClient(self._http, self._server.local_url, self._server.secret, self._settings)
        await _first_of(self._exited(), self._start_and_follow(engine))

    async def _start_and_follow(self, engine: EngineClient) -> None:
        await self._healthy(engine)
        info = await engine.info()
        await engine.set_label(BASE_LABEL)
        self._engine = engine
        self._reporter.change(capabilities=info.capabilities)
        await self._targets.caught_up.wait()
        await _first_of(self._follow(engine), self._watch_server(engine), self._watch_engine(engine))

    async def _exited(self) -> None:
        raise ServerDied(f"vLLM ended with code {await self._server.wait_exit()}")

    async def _healthy(self, engine: EngineClient) -> None:
        ends_at = time.monotonic() + self._settings.start_timeout_s
        while not await engine.is_healthy():
            if time.monotonic() > ends_at:
                raise ServerDied(f"vLLM was not healthy after {self._settings.start_timeout_s:.0f} s")
            await asyncio.sleep(STARTING_POLL_S)

    async def _watch_server(self, engine: EngineClient) -> None:
        """vLLM's own word: it refuses at once when its engine process is gone."""
        while True:
            await asyncio.sleep(self._settings.health_interval_s)
            if not await engine.is_healthy():
                raise EngineLost("vLLM is not healthy")

    async def _watch_engine(self, engine: EngineClient) -> None:
        """The engine's own answer: it shows a hang. While it loads it answers nothing; updates have own deadlines."""
        while True:
            await asyncio.sleep(self._settings.health_interval_s)
            updates = self._updates
            try:
                self._reporter.change(in_flight=(await engine.info()).in_flight)
            except EngineLost:
                if updates == self._updates and self._reporter.status.state != "updating":
                    raise

    async def _follow(self, engine: EngineClient) -> None:
        """Load every new target. Not ready before the first is loaded, ready with the old one when a later one fails."""
        resting: WorkerState = "starting"
        while True:
            target = self._targets.latest
            if target is None or is_same_weights(target, self._reporter.status.loaded):
                resting = "ready"
                self._reporter.change(state=resting, detail=None)
                await self._targets.changed()
                continue
            try:
                fetched = await fetch(self._settings, target)
            except SourceFailed as error:
                log.warning("weights_not_had", run_id=target.run_id, version=target.version, error=str(error))
                self._reporter.change(state=resting, detail=str(error)[:500])
                await self._targets.changed(self._settings.retry_interval_s)
                continue
            self._keep(fetched)
            self._updates += 1
            self._reporter.change(state="updating" if resting == "ready" else resting)
            await self._load(engine, target, fetched)

    async def _load(self, engine: EngineClient, target: WeightsPublished, fetched: Fetched) -> None:
        times_ms = await load(engine, fetched.copy.path, fetched.manifest, target.run_id, target.version)
        times_ms = {"fetch": round(fetched.seconds * 1000, 1), **times_ms}
        log.info("weights_loaded", run_id=target.run_id, version=target.version, source=fetched.source, ms=times_ms)
        self._reporter.change(loaded=target, sync_ms=times_ms)

    def _keep(self, fetched: Fetched | None) -> None:
        """The newest copy stays, so that an engine that is started again has its weights at once, with or without a trainer."""
        before, self._fetched = self._fetched, fetched
        if before is not None:
            before.copy.close()

    async def _drain(self) -> None:
        ends_at = time.monotonic() + self._settings.drain_timeout_s
        while self._engine is not None and time.monotonic() < ends_at:
            try:
                if (await self._engine.info()).in_flight == 0:
                    return
            except EngineLost:
                return
            await asyncio.sleep(DRAINING_POLL_S)


async def _first_of(*coroutines: Coroutine[object, object, object]) -> None:
    """Run all until the first ends, cancel the others, and raise what it raised."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
