"""Keeps one vLLM server alive and current. Kafka can stall, the trainer can die, vLLM can die: none stalls the others.

input     claw.weights: the latest version of this model (and run) wins
output    claw.rollout.workers, key worker_id: WorkerReported
delivery  a report is true when it is made: `ready` and `version` only after the label of the loaded weights is set
replay    reading claw.weights again changes nothing: a version that is loaded is not loaded again
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

import aiohttp
import structlog

from claw_r1.rollout.engine_client import EngineClient, EngineInfo
from claw_r1.rollout.errors import EngineLost, RolloutError, ServerDied, SourceFailed
from claw_r1.rollout.fetch import Fetched, fetch
from claw_r1.rollout.metrics import RolloutMetrics
from claw_r1.rollout.probe import probe
from claw_r1.rollout.process.adapter_place import AdapterPlace
from claw_r1.rollout.process.server import VllmServer
from claw_r1.rollout.reporter import Reporter, ReportSink
from claw_r1.rollout.settings import RolloutSettings
from claw_r1.rollout.sync import load
from claw_r1.rollout.targets import Targets, is_same_weights, lag
from claw_r1.rollout.watch import EngineWatch
from claw_r1.runtime.processes import child
from claw_r1.runtime.processes.restarts import Deaths, RestartBudget
from claw_r1.schemas.events import WeightsPublished, WorkerState
from claw_r1.schemas.http import BASE_LABEL
from claw_r1.weights.carry.carrier_handle import CARRIER, carried_by
from claw_r1.weights.carry.from_carrier import Carriage
from claw_r1.weights.host_copies import CopyRoom

log = structlog.get_logger()

Update = Callable[[], Awaitable[None]]
"""Replaces the weights of a paused engine."""


class WeightsFeed(Protocol):
    """Published versions, oldest first; of those before the start the newest are enough."""

    async def run(self, on_event: Callable[[WeightsPublished], None], caught_up: asyncio.Event) -> None:
        """Deliver for ever; set `caught_up` once the newest that was published before the start is delivered."""
        ...


@dataclass(frozen=True, slots=True)
class Stop:
    """The request to end a worker: `drain` lets running replies end, `now` does not."""

    drain: asyncio.Event = field(default_factory=asyncio.Event)
    now: asyncio.Event = field(default_factory=asyncio.Event)


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
        self.metrics = RolloutMetrics(lambda: self._reporter.status, lambda: self._targets.latest)
        self._carriage = Carriage(
            carried_by(settings.transports, lambda: settings.runs_on_cpu), partial(child.start_spoken_to, CARRIER)
        )
        self._room = CopyRoom()
        self._watch: EngineWatch | None = None
        self._newest: Fetched | None = None
        """The version that was fetched last, whose copy is kept."""
        self._loaded: Fetched | None = None
        """The version that was loaded last, whose copy is kept until another one is loaded."""
        self._loading: WeightsPublished | None = None
        self._failure: str | None = None
        """The reason why the newest version could not be had."""
        self._loads = asyncio.Lock()
        """Held while the engine loads, and for good from a drain on: it begins between two loads."""
        self._requests: dict[str, asyncio.Event] = {"probe": asyncio.Event()}

    async def run(self, stop: Stop) -> None:
        """Serve until `stop`; every process of the server is gone when this returns or raises."""
        self._requests["drain"] = stop.drain
        reporting = asyncio.create_task(self._reporter.run())
        try:
            await _first_of(stop.now.wait(), self._serve_and_drain(stop.drain))
        finally:
            await self._server.stop()
            self._keep_newest(None)
            self._keep_loaded(None)
            self._carriage.close()
            self._room.close()
            reporting.cancel()
            self._reporter.change(state="dead")
            await self._reporter.report_now()

    async def _serve_and_drain(self, drain: asyncio.Event) -> None:
        follow = self._feed.run(self._targets.consider, self._targets.caught_up)
        await _first_of(self._hold_loads_at_drain(drain), follow, self._keep_serving())
        self._reporter.change(state="draining")
        await self._reporter.report_now()
        if self._watch is not None:
            await self._watch.drained()

    async def _hold_loads_at_drain(self, drain: asyncio.Event) -> None:
        """Returns at a drain, once no load is under way: the replies that it froze would be lost. None begins afterwards."""
        await drain.wait()
        await self._loads.acquire()

    async def _keep_serving(self) -> None:
        deaths = Deaths(RestartBudget(self._settings.restarts_max, self._settings.restart_window_s, delay_s=0.0))
        while True:
            try:
                await self._serve_once()
            except (ServerDied, EngineLost) as error:
                log.error("vllm_lost", error=str(error))
                self.metrics.engine_losses.inc()
                if (target := self._loading) is not None:
                    self._targets.failed(target, str(error))
                self._watch = self._loading = None
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
        watch = EngineWatch(self._settings, engine, self._take)
        await watch.healthy(self._server.activity)
        info = await engine.info()
        await engine.set_label(BASE_LABEL)
        self._watch = watch
        self._reporter.change(capabilities=info.capabilities)
        self._take(info)  # its control requests are told once
        await self._targets.caught_up.wait()
        await _first_of(self._follow(engine, watch), self._probe_on_request(engine), watch.server(), watch.engine())

    async def _exited(self) -> None:
        raise ServerDied(f"vLLM ended with code {await self._server.wait_exit()}")

    def _take(self, info: EngineInfo) -> None:
        self._reporter.change(in_flight=info.in_flight, kv_usage=info.kv_usage, seconds=info.seconds)
        for kind in info.control_requests:
            log.info("control_request", what=kind)
            self._requests[kind].set()

    async def _follow(self, engine: EngineClient, watch: EngineWatch) -> None:
        """Load the newest target, never all. Not ready before the first is loaded; with the old one when a later one fails."""
        is_first = True
        while True:
            target = self._targets.goal
            if target is None or is_same_weights(target, self._reporter.status.loaded):
                is_first = target is None and self._targets.refusal is not None
                self._rest(is_first=is_first)
                await self._targets.changed()
                continue
            try:
                fetched = await self._fetch(target, is_first=is_first)
                update = None if fetched is None else await self._update(engine, target, fetched)
            except SourceFailed as error:
                self.metrics.not_had.inc()
                if self._targets.goal is target:
                    log.warning("weights_not_had", run_id=target.run_id, version=target.version, error=str(error))
                    self._failure = str(error)
                    self._rest(is_first=is_first)
                    await self._targets.changed(self._settings.retry_interval_s)
                continue
            if fetched is not None and update is not None:
                async with self._loads:
                    with watch.loading():
                        await self._load(engine, target, fetched, update)
                    is_first, self._failure = False, None
                    self._rest()

    async def _fetch(self, target: WeightsPublished, *, is_first: bool) -> Fetched | None:
        """Until it is here, although newer ones come: so a slow worker gets on. None as soon as somebody else offers one."""
        held = [version for version in (self._newest, self._loaded) if version is not None]
        fetching = asyncio.ensure_future(fetch(self._settings, target, held, self._carriage, self._room))
        try:
            while not fetching.done():
                changed = asyncio.ensure_future(self._targets.changed())
                try:
                    await asyncio.wait((fetching, changed), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    changed.cancel()
                self._rest(is_first=is_first)
                if self._targets.latest is not None and self._targets.latest.offer_url != target.offer_url:
                    break
            if not fetching.done():
                return None
            self._keep_newest(fetching.result())
            return self._newest
        finally:
            fetching.cancel()
            await asyncio.gather(fetching, return_exceptions=True)

    def _rest(self, *, is_first: bool = False) -> None:
        """The state between two loads, and why."""
        late = None if is_first else lag(self._targets.latest, self._reporter.status.loaded)
        state: WorkerState = "starting" if is_first else "behind" if late else "ready"
        detail = "; ".join(reason for reason in (late, self._targets.refusal, self._failure) if reason)
        self._reporter.change(state=state, detail=detail[:500] or None)

    async def _load(self, engine: EngineClient, target: WeightsPublished, fetched: Fetched, update: Update) -> None:
        if self._reporter.status.state == "ready":
            self._reporter.change(state="updating")
        self._loading = target
        times_ms = await load(engine, update, target.run_id, target.version)
        times_ms = {"fetch": round(fetched.seconds * 1000, 1), **times_ms}
        times_ms |= await probe(engine, self._settings, target)
        self._loading = None
        self._targets.served(target)
        self.metrics.loaded(fetched.source, fetched.failed)
        self._keep_loaded(fetched)
        self._room.prepare(fetched.copy, fetched.manifest.bytes_flat)
        more = {"failed_before": fetched.failed} if fetched.failed else {}
        log.info(
            "weights_loaded", run_id=target.run_id, version=target.version, source=fetched.source, ms=times_ms, **more
        )
        self._reporter.change(loaded=target, sync_ms=times_ms, weights_from=fetched.summary())

    async def _update(self, engine: EngineClient, target: WeightsPublished, fetched: Fetched) -> Update:
        """Returns what loads a version: an adapter is written down now, while the engine samples, and put in its place then.

        Raises SourceFailed: a disk that is full now may have room at the next try, and the version before goes on.
        """
        path, manifest = fetched.copy.path, fetched.manifest
        if (place := self._server.adapter) is None or target.adapter is None:
            return partial(engine.update, {"manifest": manifest.to_json(), "path": path})
        try:
            draft = await asyncio.to_thread(place.prepare, path, manifest, target.adapter)
        except OSError as error:
            raise SourceFailed(f"its adapter cannot be written: {error}") from error
        return partial(_serve, place, draft)

    async def _probe_on_request(self, engine: EngineClient) -> None:
        """A check that a person asks for; it must not meet a load. What it measures joins that of the last sync."""
        while True:
            await self._requests["probe"].wait()
            self._requests["probe"].clear()
            async with self._loads:
                if (loaded := self._reporter.status.loaded) is None:
                    log.warning("not_probed", why="no published version is loaded")
                    continue
                times_ms = await probe(engine, self._settings, loaded)
                before = {
                    name: ms for name, ms in self._reporter.status.sync_ms.items() if not name.startswith("probe")
                }
                self._reporter.change(sync_ms={**before, **times_ms})

    def _keep_newest(self, fetched: Fetched | None) -> None:
        """Keep the newest copy, so that an engine that is started again has its weights at once, with or without a trainer."""
        before, self._newest = self._newest, fetched
        if before is not None and before is not self._loaded:
            before.copy.close()

    def _keep_loaded(self, fetched: Fetched | None) -> None:
        """Keep the copy that was loaded last until another one is loaded: engines may end with the newest."""
        before, self._loaded = self._loaded, fetched
        if before is not None and before is not self._newest:
            before.copy.close()


async def _serve(place: AdapterPlace, draft: Path) -> None:
    """For an engine that is paused: it cannot go on with the label of a version whose adapter is not in its place."""
    try:
        await asyncio.to_thread(place.serve, draft)
    except OSError as error:
        raise EngineLost(f"the adapter could not be put in its place: {error}") from error


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
