"""A whole gateway for tests, through the real composition root: memory log, tables filled by hand, real sockets."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar, cast

import aiohttp
import uvicorn

from claw_r1.eventlog.memory import MemoryLog
from claw_r1.eventlog.partitioner import partition_of
from claw_r1.eventlog.records import Record
from claw_r1.gateway.app import GatewayDependencies, create_gateway
from claw_r1.gateway.control.admission import AdmissionView
from claw_r1.gateway.errors import HeaderList
from claw_r1.gateway.http.auth import KeyRing
from claw_r1.gateway.http.connection import ClientConnection, connections_to
from claw_r1.gateway.metrics import Metrics
from claw_r1.gateway.protocols import PROTOCOLS, Protocols
from claw_r1.gateway.settings import GatewaySettings
from claw_r1.gateway.upstream.engines import Engine, EngineTable
from claw_r1.schemas import codec
from claw_r1.schemas.api_keys import ApiKey, parse_key
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import (
    CallCaptured,
    CallFailed,
    Event,
    GroupMember,
    GroupRecord,
    RunStarted,
    VersionSpan,
    WorkerReported,
    WorkerState,
)
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS, REWARDS, Topic
from tests.patience import PATIENCE_S

E = TypeVar("E", bound=Event)
ASK = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
PATH = "/t1/g1/v1/chat/completions"
QUICK = {
    "worker_wait_s": 1.0,
    "worker_ttl_s": 600.0,
    "retry_wait_s": 0.01,
    "retry_wait_max_s": 0.02,
    "instance": "test",
}


class QuickServer(uvicorn.Server):
    """uvicorn without its ticks of 0.1 s: hundreds of tests start and stop one."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def main_loop(self) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        await self.on_tick(0)
        self.ready.set()
        await self._stopped.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await self.lifespan.shutdown()

    def stop(self) -> None:
        self.call(self._stopped.set)

    def call(self, work: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(work)


class HouseKeys(KeyRing):
    """A key ring that can be told under which key every request comes, whatever it brought."""

    everyones: ApiKey | None = None

    def checked(self, path: str, headers: HeaderList) -> tuple[ApiKey | None, HeaderList]:
        return (self.everyones, headers) if self.everyones else super().checked(path, headers)


class House:
    """One gateway on a free port. Settings as keywords; `upstreams` makes them fixed servers."""

    def __init__(self, log: MemoryLog | None = None, protocols: Protocols = PROTOCOLS, **settings: object) -> None:
        self.settings = GatewaySettings(**{**QUICK, **settings})  # type: ignore[arg-type]  # fields by name, of any type
        self.log = log or MemoryLog()
        fixed = [Engine(url=url) for url in self.settings.upstreams]
        self.engines = EngineTable(self.settings.worker_ttl_s, fixed)
        self.admission = AdmissionView()
        self.metrics = Metrics()
        self.keys = HouseKeys([parse_key(entry) for entry in self.settings.api_keys])
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        dependencies = GatewayDependencies(
            settings=self.settings,
            sink=self.log.producer(),
            engines=self.engines,
            admission=self.admission,
            metrics=self.metrics,
            keys=self.keys,
            protocols=protocols,
            read_calls=self.read_calls,
        )
        gateway = create_gateway(dependencies)
        self.door = gateway.door
        self.config = uvicorn.Config(
            gateway.app, http=connections_to(gateway.door), ws="none", log_config=None, timeout_graceful_shutdown=2
        )
        self._server = QuickServer(self.config)
        self._thread = threading.Thread(target=self._server.run, args=([self.listener],), daemon=True)

    def __enter__(self) -> "House":
        self._thread.start()
        assert self._server.ready.wait(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()
        self._thread.join(10)

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._server.server_state.connections)

    @property
    def tasks(self) -> int:
        """Requests that somebody works on."""
        return len(self._server.server_state.tasks)

    @property
    def waiting(self) -> int:
        """How many requests wait for others of their connections."""
        return sum(len(connection.waiting) for connection in self._connections())

    @property
    def unsent_bytes(self) -> int:
        """Of replies that clients do not read, beyond what the kernel took."""
        return sum(connection.transport.get_write_buffer_size() for connection in self._connections())

    def _connections(self) -> list[ClientConnection]:
        return cast("list[ClientConnection]", list(self._server.server_state.connections))

    def on_loop(self, work: Callable[[], object]) -> None:
        """Do this on the gateway's event loop, at its next turn."""
        self._server.call(work)

    def worker(
        self,
        url: str,
        worker_id: str = "w0",
        state: WorkerState = "ready",
        model: str = "tiny",
    ) -> None:
        """A worker reports now."""
        self.engines.apply(report(url, worker_id, state, model))

    def events(self, kind: type[E], topic: Topic = CALLS) -> list[E]:
        """All events of a kind in the log."""
        events = [record.event() for record in self.log.reader([topic]).read_to_end()]
        of_kind = [event for event in events if isinstance(event, kind)]
        # Partitions have no order among them, so events are sorted into the order in which the gateway made them.
        return sorted(of_kind, key=lambda event: event.envelope.occurred_at_us)  # type: ignore[union-attr]  # the kind that this test makes has it

    def read_calls(self, group_id: str) -> Iterator[Record]:
        """The records in the partition of a group, the latest first."""
        partition = partition_of(group_key(group_id), self.log.settings.partitions)
        return reversed(list(self.log.reader([CALLS], partitions=[partition]).read_to_end()))

    @property
    def captured(self) -> list[CallCaptured]:
        return self.events(CallCaptured)

    @property
    def failed(self) -> list[CallFailed]:
        return self.events(CallFailed)

    def raw_records(self) -> bytes:
        """Every byte that this gateway wrote into the log."""
        records = [*self.log.reader([CALLS]).read_to_end(), *self.log.reader([REWARDS]).read_to_end()]
        return b"\n".join(
            (record.key or b"") + (record.value or b"") + repr(record.headers).encode() for record in records
        )


def report(
    url: str,
    worker_id: str = "w0",
    state: WorkerState = "ready",
    model: str = "tiny",
    timestamp_ms: int | None = None,
    seconds: Mapping[str, float] | None = None,
) -> Record:
    """A record of the workers topic."""
    event = WorkerReported(
        envelope=envelope(f"rollout/{worker_id}"),
        worker_id=worker_id,
        url=url,
        model_id="model-a",
        model=model,
        state=state,
        report_interval_s=1.0,
        seconds=seconds or {},
    )
    now_ms = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
    return record(event, worker_id.encode(), "claw.rollout.workers", now_ms)


def record(event: Event, key: bytes = b"k", topic: str = "claw.x", timestamp_ms: int = 0) -> Record:
    """An event as a record of the log."""
    return Record(topic, 0, 0, timestamp_ms, key, codec.encode(event))


def span(run: str, version: int, start: int, end: int) -> VersionSpan:
    return VersionSpan(run_id=run, version=version, start=start, end=end)


def started(run: str = "r", staleness: int = 0, per_batch: int = 2, incarnation: int = 0) -> RunStarted:
    return RunStarted(
        envelope=envelope("trainer/x"),
        run_id=run,
        model_id="m",
        incarnation=incarnation,
        config="{}",
        group_size=2,
        groups_per_batch=per_batch,
        staleness_max=staleness,
        facts_prefix="claw",
    )


def group(
    group_id: str,
    *,
    run: str | None = "r",
    channel: str = "train",
    closed: bool = False,
    ready: bool = False,
    declared: bool = True,
) -> GroupRecord:
    member = GroupMember(trajectory_id="t", status="completed", ready=ready, digest="")
    return GroupRecord(
        group_id=group_id, declared=declared, run_id=run, channel=channel, closed=closed, members=(member,), ready=ready
    )


async def post(house: House, path: str, body: object = None, **headers: str) -> tuple[int, dict, dict]:  # type: ignore[type-arg]  # JSON of any shape
    named = {"x-claw-" + name.replace("_", "-"): value for name, value in headers.items()}
    async with aiohttp.ClientSession() as session, session.post(house.url + path, json=body, headers=named) as reply:
        return reply.status, await reply.json(), {name.lower(): value for name, value in reply.headers.items()}


class Answer:
    """A reply, read whole."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self) -> dict:  # type: ignore[type-arg]  # JSON of any shape
        parsed: dict = json.loads(self.body)  # type: ignore[type-arg]  # JSON of any shape
        return parsed


async def ask(house: House, body: object = ASK, path: str = PATH, **headers: str) -> Answer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {"x-claw-" + name.replace("_", "-"): value for name, value in headers.items()}
    async with aiohttp.ClientSession() as session, session.post(house.url + path, data=data, headers=named) as reply:
        return Answer(reply.status, {name.lower(): value for name, value in reply.headers.items()}, await reply.read())
