"""A gateway in processes of its own, agents that load it and remember what they saw, and what the log holds in the end."""

import asyncio
import os
import random
import re
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import psutil

from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.records import Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.events import CallCaptured, TrajectoryCompleted
from claw_r1.schemas.topics import CALLS
from tests import children
from tests.gateway.speaking import CHAT, SPEAKING, Spoken
from tests.patience import until

STARTED = re.compile(r'"url": "(https?://[^"]+)".*"event": "gateway_listening"')
ASK = CHAT.ask
SECRET = "planted-secret-7f3a"


class GatewayProcess:
    """`python -m claw_r1.gateway` on a free port."""

    def __init__(
        self, log: LogSettings, folder: Path, *flags: str, workers: int = 1, port: int = 0, **env: str
    ) -> None:
        self.stderr = folder / f"gateway-{time.monotonic_ns()}.txt"
        where = ["--prefix", log.prefix, "--partitions", str(log.partitions), "--spool-dir", str(folder / "spool")]
        argv = [sys.executable, "-m", "claw_r1.gateway", "--port", str(port), "--workers", str(workers), *where, *flags]
        environment = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": log.bootstrap_servers, **env}
        with self.stderr.open("wb") as stderr:
            self.process = children.start(argv, env=environment, stderr=stderr)
        try:
            until(lambda: self.process.poll() is not None or len(STARTED.findall(self.said)) >= workers)
        except BaseException:
            children.end(self.process)  # nobody else would: there is no object yet that could be asked to stop
            raise
        assert self.process.poll() is None, self.said
        self.url = STARTED.findall(self.said)[0]
        self.port = int(self.url.rpartition(":")[2])

    @property
    def said(self) -> str:
        return self.stderr.read_text()

    @property
    def workers(self) -> list[psutil.Process]:
        """The processes below a parent."""
        return psutil.Process(self.process.pid).children()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def stop(self, timeout_s: float = 60) -> int:
        """Its exit code after SIGTERM; whoever has not ended by then is killed with its workers."""
        return children.end(self.process, timeout_s)

    def metric(self, name: str, url: str | None = None) -> float:
        """A metric without labels."""
        with urllib.request.urlopen(f"{url or self.url}/metrics", timeout=10) as reply:
            text = reply.read().decode()
        found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
        assert found, f"{name} is not among the metrics"
        return float(found[1])


@dataclass
class Agents:
    """Clients that call, each trajectory in the next protocol, complete them, and write down what they were told.

    An error is never hidden.
    """

    url: str
    calls_per_trajectory: int = 5
    pause_s: float = 0.0
    """The longest that they wait before a call, with their connection open."""
    name: str = "a"
    replied: list[str] = field(default_factory=list)
    completed: dict[str, list[str]] = field(default_factory=dict)
    """Trajectory → the calls it had when its completion was accepted."""
    errors: list[str] = field(default_factory=list)
    refused: int = 0
    """Connections that nobody took: a gateway that is down, not a request that failed."""
    latencies_s: list[float] = field(default_factory=list)
    stopping: bool = False
    count: int = 0

    async def run(self, concurrency: int) -> None:
        """Load until `stopping`."""
        connector = aiohttp.TCPConnector(limit=0)
        secret = {"authorization": f"Bearer {SECRET}", "cookie": SECRET, "x-api-key": SECRET}
        timeout = aiohttp.ClientTimeout(total=90)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=secret) as session:
            await asyncio.gather(*(self._agent(session) for _ in range(concurrency)))

    async def _agent(self, session: aiohttp.ClientSession) -> None:
        while not self.stopping:
            self.count += 1
            try:
                await self._trajectory(session, f"{self.name}{self.count}", SPEAKING[self.count % len(SPEAKING)])
            except aiohttp.ClientConnectorError:
                self.refused += 1
                await asyncio.sleep(0.05)
            except (aiohttp.ClientError, TimeoutError, AssertionError) as error:
                self.errors.append(f"{type(error).__name__}: {error}")
                await asyncio.sleep(0.05)

    async def _trajectory(self, session: aiohttp.ClientSession, name: str, spoken: Spoken) -> None:
        calls: list[str] = []
        base = f"{self.url}/{name}/g{hash(name) % 4}/v1"
        for number in range(self.calls_per_trajectory):
            await asyncio.sleep(random.uniform(0, self.pause_s))
            began = time.monotonic()
            streamed = number % 2 == 1
            async with session.post(f"{base}/{spoken.end}", json={**spoken.ask, "stream": streamed}) as reply:
                text = await reply.text()
                assert reply.status == 200, text
                # Tests of the promise must not take a stream without its end for a reply.
                assert not streamed or text.endswith(spoken.last.decode()), text[-200:]
                calls.append(reply.headers["x-claw-call-id"])
            self.latencies_s.append(time.monotonic() - began)
            self.replied.append(calls[-1])
        async with session.post(f"{base}/complete_trajectory", json={"calls": len(calls)}) as reply:
            assert reply.status == 200, await reply.text()
            self.completed[name] = calls


@contextmanager
def loaded(url: str, concurrency: int, pause_s: float = 0.0, name: str = "") -> Iterator[Agents]:
    """Agents at work in a thread, for whoever starts a broker must not leave his own; at the end they finish what they have."""
    agents = Agents(url, pause_s=pause_s, name=f"{name}p{pause_s}-" if pause_s else f"{name}a")
    thread = threading.Thread(target=lambda: asyncio.run(agents.run(concurrency)))
    thread.start()
    try:
        yield agents
    finally:
        agents.stopping = True
        thread.join(120)
    assert not thread.is_alive()


@dataclass
class Found:
    """The topic, read to its end."""

    records: list[Record]

    @classmethod
    def of(cls, log: LogSettings) -> "Found":
        reader = KafkaLog(log).reader([CALLS])
        try:
            return cls(list(reader.read_to_end()))
        finally:
            reader.close()

    @property
    def protocols(self) -> set[str]:
        """Of all calls in it."""
        events = [record.event() for record in self.records]
        return {event.protocol for event in events if isinstance(event, CallCaptured)}

    def check(self, *agents: Agents, duplicates: bool = False) -> None:
        """Nothing that was replied is lost; unless the broker was away, nothing is there twice."""
        first: dict[str, int] = {}
        ends: dict[str, int] = {}
        event_ids: dict[str, set[str]] = {}
        counted: Counter[str] = Counter()
        for record in self.records:
            event = record.event()
            if isinstance(event, CallCaptured):
                first.setdefault(event.call_id, record.offset)
                counted[event.call_id] += 1
                event_ids.setdefault(event.call_id, set()).add(event.envelope.event_id)
            elif isinstance(event, TrajectoryCompleted):
                ends.setdefault(event.trajectory_id, record.offset)
        for one in agents:
            lost = [call for call in one.replied if call not in first]
            assert not lost, f"{len(lost)} of {len(one.replied)} acknowledged calls are lost"
            for trajectory, calls in one.completed.items():
                early = [call for call in calls if first[call] > ends[trajectory]]
                assert not early, f"{trajectory}: {len(early)} calls stand behind its completion"
        assert all(len(ids) == 1 for ids in event_ids.values()), "a copy must carry its event id"
        if not duplicates:
            assert max(counted.values(), default=1) == 1, "a call is in the log twice"


async def poll(holds: Callable[[], object]) -> None:
    """`until` in a thread: what it looks at may answer over HTTP."""
    await asyncio.to_thread(until, holds)
