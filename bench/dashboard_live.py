"""The costs of open pages, and the delay until they show a call: a broker, a gateway, streams and the dashboard, at 100
calls a second."""

import asyncio
import statistics
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from playwright.sync_api import sync_playwright

from bench.gateway_ground import ASK, report_worker
from bench.measured_process import Measured, running
from claw_r1.claw.local.ports import free_ports
from claw_r1.eventlog.kafka.admin import create_topics
from claw_r1.eventlog.settings import LogSettings
from tests.browser import ARGUMENTS, chromium

RATE = 100
CALLS_PER_TRAJECTORY = 4
GROUP_SIZE = 8
SECONDS = 12.0
WARM_S = 4.0
PARTITIONS = 8
COLUMN_OF_NAMES = "live-"
Figures = dict[str, float]
WATCH = """
window.seen = {};
new MutationObserver(() => {
  for (const [name] of document.body.innerText.matchAll(/live-[0-9a-f]+-[0-9]+/g)) window.seen[name] ??= Date.now();
}).observe(document.body, {childList: true, subtree: true, characterData: true});
"""


@dataclass(frozen=True)
class Stage:
    """Processes, and where they listen."""

    gateway: Measured
    dashboard: Measured
    gateway_port: int
    page_port: int


@contextmanager
def stage(bootstrap: str, folder: Path) -> Iterator[Stage]:
    """Everything running on topics of its own."""
    upstream_port, gateway_port, page_port = free_ports(3)
    log = LogSettings(bootstrap_servers=bootstrap, prefix=f"bench{uuid.uuid4().hex[:8]}", partitions=PARTITIONS)
    create_topics(log)
    report_worker(log, f"http://127.0.0.1:{upstream_port}")
    where = ("--bootstrap-servers", bootstrap, "--prefix", log.prefix, "--partitions", str(PARTITIONS))
    settings = {"CLAW_GATEWAY_WORKER_TTL_S": "86400", "CLAW_GATEWAY_SPOOL_DIR": str(folder / "spool")}
    kafka = {
        "KAFKA_BOOTSTRAP_SERVERS": bootstrap,
        "CLAW_LOG_PREFIX": log.prefix,
        "CLAW_LOG_PARTITIONS": str(PARTITIONS),
    }
    with ExitStack() as stack:

        def start(module: str, *words: str, ready: str, **environment: str) -> Measured:
            return stack.enter_context(running(module, *words, ready=ready, log=folder / module, **environment))

        start("bench.scripted_upstream", str(upstream_port), ready="listening")
        start("claw_r1.streams", ready="streams_assigned", **kafka)
        gateway = start("claw_r1.gateway", "--port", str(gateway_port), *where, ready="gateway_listening", **settings)
        page = start("claw_r1.consumers.dashboard", "--port", str(page_port), *where, ready="dashboard_listening")
        yield Stage(gateway, page, gateway_port, page_port)


@dataclass
class Load:
    """So many calls a second, each sent when it is due. `acknowledged`: trajectory -> when its first reply was whole, in ms of UTC."""

    port: int
    name: str = field(default_factory=lambda: uuid.uuid4().hex[:6])
    calls: int = 0
    acknowledged: dict[str, float] = field(default_factory=dict)
    _end: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        """In a thread, until the block ends."""
        thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        thread.start()
        try:
            yield
        finally:
            self._end.set()
            thread.join()

    async def _run(self) -> None:
        begin, number, under_way = time.monotonic(), 0, set[asyncio.Task[None]]()
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=64)) as session:
            while not self._end.is_set():
                if (late := begin + number / RATE - time.monotonic()) > 0:
                    await asyncio.sleep(late)
                call = asyncio.create_task(self._call(session, number))
                under_way.add(call)
                call.add_done_callback(under_way.discard)
                number += 1
            await asyncio.gather(*under_way)

    async def _call(self, session: aiohttp.ClientSession, number: int) -> None:
        trajectory = number // CALLS_PER_TRAJECTORY
        name = f"{COLUMN_OF_NAMES}{self.name}-{trajectory}"
        path = f"{name}/{self.name}-g{trajectory // GROUP_SIZE}/v1/chat/completions"
        async with session.post(f"http://127.0.0.1:{self.port}/{path}", json=ASK) as reply:
            await reply.read()
            reply.raise_for_status()
        self.calls += 1
        self.acknowledged.setdefault(name, time.time() * 1000)


@contextmanager
def listeners(port: int, count: int) -> Iterator[None]:
    """So many open streams, each read as it comes, in one thread."""
    end = threading.Event()

    async def listen(session: aiohttp.ClientSession) -> None:
        async with session.get(f"http://127.0.0.1:{port}/api/v1/live") as stream:
            async for _ in stream.content.iter_any():
                pass

    async def all_of_them() -> None:
        timeout = aiohttp.ClientTimeout(total=None)
        options = {"cookie_jar": aiohttp.CookieJar(unsafe=True), "connector": aiohttp.TCPConnector(limit=0)}
        async with aiohttp.ClientSession(timeout=timeout, raise_for_status=True, **options) as session:
            await (await session.get(f"http://127.0.0.1:{port}/api/v1/session")).read()
            tasks = [asyncio.create_task(listen(session)) for _ in range(count)]
            await asyncio.to_thread(end.wait)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    thread = threading.Thread(target=lambda: asyncio.run(all_of_them()))
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def costs(place: Stage, streams: int) -> tuple[float, float]:
    """CPU seconds per call of the gateway, and per second of the dashboard, with so many streams open."""
    load = Load(place.gateway_port)
    with listeners(place.page_port, streams), load.running():
        time.sleep(WARM_S)
        begin, calls = time.monotonic(), load.calls
        before = place.gateway.cpu_s(), place.dashboard.cpu_s()
        time.sleep(SECONDS)
        after = place.gateway.cpu_s(), place.dashboard.cpu_s()
        calls, seconds = load.calls - calls, time.monotonic() - begin
    return (after[0] - before[0]) / calls, (after[1] - before[1]) / seconds


def delays_ms(place: Stage) -> list[float]:
    """From the reply of a trajectory's first call to its row on the screen of the explorer, newest first."""
    load = Load(place.gateway_port)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
        page = opened.new_page(viewport={"width": 1400, "height": 1600})
        page.goto(f"http://127.0.0.1:{place.page_port}/explorer?kind=trajectories&sort=started&desc=true&follow=1")
        page.wait_for_selector(".stream.live")
        page.evaluate(f"() => {{ {WATCH} }}")
        with load.running():
            time.sleep(WARM_S + SECONDS)
        time.sleep(3)
        seen = page.evaluate("() => window.seen")
        opened.close()
    return [seen[name] - at for name, at in load.acknowledged.items() if name in seen]


def measure(bootstrap: str, folder: Path, repeats: int) -> Figures:
    """`fanout_ratio`, `gateway_ratio`, `live_ms_p50`, `live_ms_p99`, and the share of trajectories that were seen at all."""
    rounds: dict[int, list[tuple[float, float]]] = {count: [] for count in (0, 1, 10, 50)}
    with stage(bootstrap, folder) as place:
        for _ in range(repeats):
            for count, results in rounds.items():
                results.append(costs(place, count))
        delays = sorted(delays_ms(place))
    per_call = {count: statistics.median(each[0] for each in results) for count, results in rounds.items()}
    per_second = {count: statistics.median(each[1] for each in results) for count, results in rounds.items()}
    return {
        "fanout_ratio": per_second[50] / per_second[1],
        "gateway_ratio": per_call[10] / per_call[0],
        "live_ms_p50": statistics.median(delays) if delays else float("nan"),
        "live_ms_p99": delays[int(0.99 * len(delays))] if delays else float("nan"),
        "live_rows_seen": float(len(delays)),
    }
