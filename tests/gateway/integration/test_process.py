"""The gateway as a process: started, stopped, killed, on the real broker."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from claw_r1.claw.keys import records
from claw_r1.claw.local.ports import free_ports
from claw_r1.eventlog.kafka.admin import create_topics
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.records import Outgoing
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.api_keys import new_key
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import CallCaptured, Event, KeyRecorded, TrajectoryCompleted
from claw_r1.schemas.topics import BATCHES, CALLS, GROUPS, WORKERS
from tests.gateway.engine import Reply, ScriptedEngine, completion
from tests.gateway.house import ASK, group, report, started
from tests.gateway.processes import GatewayProcess
from tests.patience import PATIENCE_S, until
from tests.soak import in_soak

pytestmark = pytest.mark.process


@pytest.fixture
def running(log_settings: LogSettings, engine: ScriptedEngine, tmp_path: Path) -> Iterator[GatewayProcess]:
    """A gateway before the scripted engine, as fixed upstream."""
    process = GatewayProcess(log_settings, tmp_path, "--upstream", engine.url)
    yield process
    process.kill()


def facts(log_settings: LogSettings) -> list[Event]:
    reader = KafkaLog(log_settings).reader([CALLS])
    try:
        return [record.event() for record in reader.read_to_end()]
    finally:
        reader.close()


def captured(log_settings: LogSettings) -> list[CallCaptured]:
    return [event for event in facts(log_settings) if isinstance(event, CallCaptured)]


async def ask(url: str, session: aiohttp.ClientSession, trajectory: str = "t") -> str:
    async with session.post(f"{url}/{trajectory}/g/v1/chat/completions", json=ASK) as reply:
        reply.raise_for_status()
        await reply.read()
        return reply.headers["x-claw-call-id"]


@pytest.mark.kafka
async def test_replied_calls_are_in_the_log_before_their_completion(
    running: GatewayProcess, log_settings: LogSettings
) -> None:
    """Every call id that a client saw is on the real broker, once, before the completion sent after it."""
    async with aiohttp.ClientSession() as session:
        replied = await asyncio.gather(*(ask(running.url, session) for _ in range(40)))
        async with session.post(f"{running.url}/t/g/v1/complete_trajectory", json={"calls": 40}) as reply:
            assert reply.status == 200
    events = facts(log_settings)
    assert sorted(event.call_id for event in events if isinstance(event, CallCaptured)) == sorted(replied)
    assert isinstance(events[-1], TrajectoryCompleted)


@pytest.mark.kafka
async def test_sigterm_ends_calls_in_flight_and_exits_0(
    running: GatewayProcess, log_settings: LogSettings, engine: ScriptedEngine
) -> None:
    """After SIGTERM the calls under way are answered and captured; the exit code says that all is well."""
    engine.default = lambda received: Reply(completion(received.json).body, delay_s=1.0)
    async with aiohttp.ClientSession() as session:
        calls = [asyncio.ensure_future(ask(running.url, session)) for _ in range(4)]
        await asyncio.to_thread(until, lambda: len(engine.requests) == 4)
        code = await asyncio.to_thread(running.stop)
        assert len(set(await asyncio.gather(*calls))) == 4
    assert code == 0
    assert len(captured(log_settings)) == 4


@pytest.mark.kafka
async def test_worker_is_found_through_the_log(
    log_settings: LogSettings, engine: ScriptedEngine, tmp_path: Path
) -> None:
    """A call that waits is answered by a worker that reports later."""
    process = GatewayProcess(log_settings, tmp_path)
    producer = KafkaLog(log_settings).producer()
    try:
        async with aiohttp.ClientSession() as session:
            call = asyncio.ensure_future(ask(process.url, session))
            await asyncio.sleep(0.2)
            assert not call.done()
            await producer.publish(WORKERS, b"w0", report(engine.url).event())
            await asyncio.wait_for(call, 10)
        (event,) = captured(log_settings)
        assert (event.worker_id, event.integrity.complete) == ("w0", True)
    finally:
        producer.close()
        assert process.stop() == 0


@pytest.mark.kafka
def test_a_start_without_keys_says_who_may_ask(running: GatewayProcess) -> None:
    """Open to the machine is a choice that its log shows, once, as a warning."""
    (warning,) = (json.loads(line) for line in running.said.splitlines() if "gateway_without_api_keys" in line)
    assert warning["level"] == "warning"
    assert "everybody on this machine" in warning["who"]


@pytest.mark.kafka
async def test_with_keys_only_the_metrics_port_is_open(
    log_settings: LogSettings, engine: ScriptedEngine, tmp_path: Path
) -> None:
    """With keys there is no warning and no call without one; the port of its own for metrics asks for none, as documented."""
    (port,) = free_ports(1)
    key, entry = new_key("agent")
    flags = ("--upstream", engine.url, "--metrics-port", str(port))
    process = GatewayProcess(log_settings, tmp_path, *flags, CLAW_GATEWAY_API_KEYS=entry)
    try:
        assert "gateway_without_api_keys" not in process.said
        assert entry not in process.said
        assert process.said.index("metrics_served") < process.said.index("gateway_listening")  # probes answer first
        async with aiohttp.ClientSession() as session:
            for path in ("/metrics", "/v1/models"):
                async with session.get(process.url + path) as reply:
                    assert reply.status == 401
            async with session.get(f"{process.url}/v1/models", headers={"x-api-key": key}) as reply:
                assert reply.status == 200
            async with session.get(f"http://127.0.0.1:{port}/metrics") as reply:
                assert reply.status == 200
                assert key.encode() not in await reply.read()
        assert process.metric("claw_gateway_in_flight", f"http://127.0.0.1:{port}") == 0
    finally:
        assert process.stop() == 0


@pytest.mark.kafka
async def test_a_key_is_in_force_in_each_process(
    log_settings: LogSettings, engine: ScriptedEngine, tmp_path: Path
) -> None:
    """In each process, on connections that stay open: made, used, and revoked while it is used; and no process says it."""
    _, entry = new_key("operator")
    flags = ("--upstream", engine.url)
    gateway = GatewayProcess(log_settings, tmp_path, *flags, workers=2, CLAW_GATEWAY_API_KEYS=entry)

    async def until_status(session: aiohttp.ClientSession, status: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                async with session.post("/t/g/v1/chat/completions", json=ASK) as reply:
                    if reply.status == status:
                        return

    try:
        template = KeyRecorded(envelope=envelope("test"), digest="", name="a", role="agent")
        secret, _ = await asyncio.to_thread(records.create, log_settings, template)
        sessions = [aiohttp.ClientSession(gateway.url, headers={"x-api-key": secret}) for _ in range(8)]
        try:
            await asyncio.gather(*(until_status(session, 200) for session in sessions))
            await asyncio.to_thread(records.revoke, log_settings, "a")
            await asyncio.gather(*(until_status(session, 401) for session in sessions))
        finally:
            await asyncio.gather(*(session.close() for session in sessions))
        assert secret not in gateway.said
    finally:
        assert gateway.stop() == 0


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        in_soak(["--port", "70000"], "port"),
        (["--host", "0.0.0.0", "--metrics-port", "9100"], "CLAW_GATEWAY_API_KEYS"),
        in_soak(["--upstream", "ftp://x"], "upstream"),
        (["--upstream", "http://user:hunter2@x"], "credentials"),
        (["--bootstrap-servers", "127.0.0.1:1"], "127.0.0.1:1"),
    ],
)
def test_wrong_settings_are_one_clear_line(flags: list[str], says: str) -> None:
    """A start that cannot work is exit 2 and one line without a traceback or a secret."""
    environment = {**os.environ, "CLAW_LOG_CONNECT_TIMEOUT_S": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "claw_r1.gateway", "--port", "0", *flags],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
    )
    last = done.stderr.strip().splitlines()[-1]
    assert (done.returncode, last.startswith("gateway: ")) == (2, True), done.stderr
    assert says in last
    assert "Traceback" not in done.stderr
    assert "hunter2" not in done.stderr


@pytest.mark.kafka
async def test_room_is_counted_in_the_generation_in_use(log_settings: LogSettings, tmp_path: Path) -> None:
    """A gateway that was cut over asks the pool's next generation how many groups are open, and no other."""
    second = log_settings.model_copy(update={"generation": 2})
    create_topics(second)
    run = Outgoing.of(BATCHES, b"r", started("r", 0, 2))
    publish(log_settings, [run, *(Outgoing.of(GROUPS, name.encode(), group(name)) for name in ("a", "b"))])
    publish(second, [Outgoing.of(GROUPS, b"c", group("c"))])
    gateway = GatewayProcess(log_settings, tmp_path, "--upstream", "http://127.0.0.1:1", CLAW_LOG_GENERATION="2")
    try:
        async with aiohttp.ClientSession() as session:
            statuses = []
            for _ in range(2):
                async with session.post(f"{gateway.url}/groups", json={"run_id": "r"}) as reply:
                    statuses.append(reply.status)
    finally:
        gateway.kill()
    assert statuses == [201, 429]


def publish(log_settings: LogSettings, items: list[Outgoing]) -> None:
    producer = EventProducer(log_settings)
    try:
        for future in [producer.produce(item) for item in items]:
            future.result()
    finally:
        producer.close()
