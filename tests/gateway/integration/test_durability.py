"""Promise 1 on the real broker: what a client saw is in the log, whatever dies, stops, fills up or is slow.

Agents speak all protocols in turn.
"""

import asyncio
import contextlib
import json
import os
import random
import re
import resource
import signal
import statistics
import subprocess
import sys
import time
import urllib.error
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import psutil
import pytest

from claw_r1.claw.local.kafka.node import LocalBroker
from claw_r1.claw.local.ports import free_ports, is_free
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import WORKERS
from tests.gateway.engine import Reply, ScriptedEngine
from tests.gateway.house import report
from tests.gateway.processes import ASK, SECRET, STARTED, Agents, Found, GatewayProcess, poll
from tests.gateway.speaking import SPEAKING, answer
from tests.patience import until
from tests.soak import SOAK, in_soak

pytestmark = [pytest.mark.kafka, pytest.mark.soak]
MIB = 1 << 20
QUICK = {"CLAW_LOG_ACK_TIMEOUT_MS": "1000"}
AWAY_S = 60.0 if SOAK else 3.0
SMALL_CACHES = {"CLAW_GATEWAY_REPLAY_ENTRIES_MAX": "100", "CLAW_GATEWAY_PARENT_BYTES_MAX": str(MIB)}
"""Full within a second, so that what grows afterwards is no cache."""
NOISE_BYTES = 8 * MIB
"""Of an allocator, whatever happens."""
SMALL_DISK_BYTES = MIB
SMALL_FILE_BYTES = 60_000
"""Reached within seconds by a gateway that is given little time, too."""
REFUSED_CALLS = 2000 if SOAK else 500
"""Their lines are more than a pipe holds."""
REFUSED = "send it again"
"""What a refusal says in every protocol."""


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    """A scripted engine of all protocols."""
    with ScriptedEngine(answer) as running:
        yield running


@contextlib.contextmanager
def gateway(log: LogSettings, folder: Path, *flags: str, workers: int = 1, **env: str) -> Iterator[GatewayProcess]:
    process = GatewayProcess(log, folder, *flags, workers=workers, **env)
    try:
        yield process
    finally:
        process.stop(20)


@contextlib.asynccontextmanager
async def load(url: str, concurrency: int = 8, name: str = "a") -> AsyncIterator[Agents]:
    """Agents at work; at the end they finish what they have."""
    agents = Agents(url, name=name)
    task = asyncio.ensure_future(agents.run(concurrency))
    try:
        yield agents
    finally:
        agents.stopping = True
        await asyncio.wait_for(task, 120)


def signal_broker(broker: LocalBroker, number: int) -> None:
    """Returns when the broker stands still, where it is told to."""
    assert broker.process is not None
    broker.process.signal(number)
    if number == signal.SIGSTOP:
        until(lambda: psutil.Process(broker.process.pid).status() == psutil.STATUS_STOPPED)


def neighbours() -> int:
    """A free port whose next one is free, too: below those that the kernel hands out, which another test may get meanwhile."""
    while not is_free((port := free_ports(1)[0]) + 1):
        pass
    return port


class Memory:
    """Resident memory of a process over time."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self.times_s: list[float] = []
        self.sizes: list[int] = []

    def look(self) -> None:
        """One sample."""
        self.times_s.append(time.monotonic())
        self.sizes.append(self._process.memory_info().rss)

    @property
    def slope(self) -> float:
        """Bytes per second, by least squares: one large sample says little."""
        return statistics.linear_regression(self.times_s, self.sizes).slope

    @property
    def grown(self) -> float:
        """Bytes over all samples, along the slope."""
        return self.slope * (self.times_s[-1] - self.times_s[0])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The spool's folder as a disk of its own, with little room."""
    where = tmp_path / "spool"
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_BYTES}", "none", str(where)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, timeout=10)
    except FileNotFoundError:
        pytest.skip("this machine has no mount")
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    yield where
    subprocess.run(["umount", "--lazy", str(where)], check=True, timeout=10)


def used_bytes(folder: Path) -> int:
    """Of records, in all spools below it."""
    return sum(path.stat().st_size for path in folder.glob("*/*/*.spool"))


def take_away(broker: LocalBroker, how: str) -> None:
    """A broker that does not answer, or one that is not there at all."""
    if how == "paused":
        signal_broker(broker, signal.SIGSTOP)
    else:
        broker.kill()


def bring_back(broker: LocalBroker, how: str) -> None:
    """In this thread: the broker ends with the thread that starts it."""
    if how == "paused":
        signal_broker(broker, signal.SIGCONT)
    else:
        broker.start()


async def test_kill_under_load(log_settings: LogSettings, engine: ScriptedEngine, tmp_path: Path) -> None:
    """kill -9 again and again: 0 acknowledged calls lost, 0 twice."""
    rounds: list[Agents] = []
    for number in range(SOAK or 1):
        with gateway(log_settings, tmp_path, "--upstream", engine.url) as running:
            async with load(running.url, name=f"r{number}-") as agents:
                await poll(lambda agents=agents: len(agents.replied) >= 60 + random.randrange(60))  # type: ignore[misc]  # a lambda with a default
                running.kill()
                agents.stopping = True
            rounds.append(agents)
    assert all(len(agents.replied) >= 60 for agents in rounds)
    topic = Found.of(log_settings)
    topic.check(*rounds)
    assert topic.protocols == {spoken.name for spoken in SPEAKING}


@pytest.mark.parametrize("how", ["paused", in_soak("killed")])
async def test_broker_away(
    local_log: LogSettings, local_broker: LocalBroker, engine: ScriptedEngine, tmp_path: Path, how: str
) -> None:
    """A broker that stops answering under load: no client sees an error, the spool grows on the disk and not in memory,
    it drains, and completions stand behind their calls."""
    with gateway(local_log, tmp_path, "--upstream", engine.url, **QUICK, **SMALL_CACHES) as running:
        memory = Memory(running.process.pid)
        async with load(running.url) as agents:
            await poll(lambda: len(agents.replied) >= 50)
            take_away(local_broker, how)
            try:
                stopped_at = len(agents.replied)
                await poll(lambda: running.metric("claw_spool_log_away") == 1)
                deadline = time.monotonic() + AWAY_S
                while time.monotonic() < deadline:
                    memory.look()
                    await asyncio.sleep(0.2)
                served = len(agents.replied) - stopped_at
                spooled = running.metric("claw_spool_bytes")
                assert running.metric("claw_spool_records") > 100
            finally:
                bring_back(local_broker, how)
            await poll(lambda: running.metric("claw_spool_log_away") == 0)
            seen = len(agents.replied)
            await poll(lambda: len(agents.replied) > seen + 100)
        await poll(lambda: running.metric("claw_spool_records") == 0)
        assert running.metric("claw_spool_bytes") == 0
        assert running.metric("claw_capture_lost_total") == 0
        assert agents.errors == []
        said = f"{served} calls replied, {spooled / MIB:.1f} MiB spooled, RSS {memory.slope / 1024:+.0f} KiB/s"
        print(f"away {AWAY_S:.0f} s: {said}, {memory.grown / MIB:+.1f} MiB in all")
        assert served > 100, "while the log is away, calls go on at their pace"
        assert memory.grown < NOISE_BYTES + spooled / 4, said
    Found.of(local_log).check(agents, duplicates=True)


async def test_a_broker_that_goes_away_unused_takes_no_worker_away(
    local_log: LogSettings, local_broker: LocalBroker, engine: ScriptedEngine, tmp_path: Path
) -> None:
    """Nothing is published when the outage begins, and the reports that cannot arrive are missed before a call is: it is served, and spooled."""
    ttl = {"CLAW_GATEWAY_WORKER_TTL_S": "2", "CLAW_GATEWAY_WORKER_WAIT_S": "20"}
    with gateway(local_log, tmp_path, **QUICK, **ttl) as running:
        with contextlib.closing(KafkaLog(local_log).producer()) as producer:

            def is_known() -> bool:  # told again, since on a slow machine a report may be too old when it is read
                producer.publish_now(WORKERS, b"w0", report(engine.url).event())
                return running.metric("claw_gateway_workers") == 1

            await poll(is_known)
        signal_broker(local_broker, signal.SIGSTOP)
        try:
            await asyncio.sleep(3)  # the report is older than workers may be silent
            url = f"{running.url}/t/g/v1/chat/completions"
            async with aiohttp.ClientSession() as session, session.post(url, json=ASK) as reply:
                assert (reply.status, running.metric("claw_spool_records")) == (200, 1), await reply.text()
        finally:
            signal_broker(local_broker, signal.SIGCONT)


async def test_kill_while_the_broker_is_away(
    local_log: LogSettings, local_broker: LocalBroker, engine: ScriptedEngine, tmp_path: Path
) -> None:
    """What a killed gateway had spooled reaches the log through the next one, calls before completions."""
    with gateway(local_log, tmp_path, "--upstream", engine.url, **QUICK) as running:
        async with load(running.url) as agents:
            await poll(lambda: len(agents.replied) >= 50)
            signal_broker(local_broker, signal.SIGSTOP)
            await poll(lambda: running.metric("claw_spool_records") > 100)
            running.kill()
            agents.stopping = True
        signal_broker(local_broker, signal.SIGCONT)
    spooled = b"".join(path.read_bytes() for path in (tmp_path / "spool").glob("*/*/*.spool"))
    assert ASK["messages"][0]["content"].encode() in spooled, "prompts are in the spool"  # type: ignore[index]  # the kind that this test makes has it
    assert SECRET.encode() not in spooled, "what authorizes is not"
    with gateway(local_log, tmp_path, "--upstream", engine.url, **QUICK) as heir:
        await poll(lambda: heir.metric("claw_spool_records") == 0)
        assert heir.metric("claw_spool_drained_total") > 100
    Found.of(local_log).check(agents, duplicates=True)
    assert not list((tmp_path / "spool").glob("*/*/*.spool"))


async def test_slow_broker(
    local_log: LogSettings, local_broker: LocalBroker, engine: ScriptedEngine, tmp_path: Path
) -> None:
    """A broker that answers by fits and starts, often too late: nothing lost, no error, copies under one event id."""
    slow = {"CLAW_LOG_ACK_TIMEOUT_MS": "300"}
    with gateway(local_log, tmp_path, "--upstream", engine.url, **slow) as running:
        async with load(running.url) as agents:
            for _ in range(40 if SOAK else 4):
                signal_broker(local_broker, signal.SIGSTOP)
                await asyncio.sleep(random.uniform(0.2, 0.8))
                signal_broker(local_broker, signal.SIGCONT)
                await asyncio.sleep(random.uniform(0.1, 0.5))
        await poll(lambda: running.metric("claw_spool_records") == 0)
        assert agents.errors == []
        assert len(agents.replied) > 50
    Found.of(local_log).check(agents, duplicates=True)


@pytest.mark.parametrize("choice", ["refuse", "availability"])
async def test_neither_log_nor_spool(
    local_log: LogSettings, local_broker: LocalBroker, engine: ScriptedEngine, tmp_path: Path, choice: str
) -> None:
    """With the spool at its limit and no broker: a clear 503 and not ready, or, as chosen, the reply and a count; and
    all is well again by itself. What was promised is kept."""
    small = {**QUICK, "CLAW_GATEWAY_SPOOL_BYTES_MAX": "20000", "CLAW_GATEWAY_CAPTURE_ON_FAILURE": choice}
    statuses: list[tuple[int, str]] = []
    kept: list[str] = []
    with gateway(local_log, tmp_path, "--upstream", engine.url, **small) as running:
        async with aiohttp.ClientSession() as session:

            async def ask(number: int) -> None:
                async with session.post(
                    f"{running.url}/t{number}/g/v1/chat/completions", json={"messages": []}
                ) as reply:
                    statuses.append((reply.status, await reply.text()))
                    if reply.status == 200 and "x-claw-call-id" in reply.headers:
                        kept.append(reply.headers["x-claw-call-id"])

            async def ready() -> int:
                async with session.get(f"{running.url}/readyz") as reply:
                    return reply.status

            await ask(0)
            signal_broker(local_broker, signal.SIGSTOP)
            assert await ready() == 200, "the spool still takes events"
            await asyncio.gather(*(ask(number) for number in range(1, 40)))
            assert await ready() == 503
            lost = running.metric("claw_capture_lost_total")
            signal_broker(local_broker, signal.SIGCONT)
            await poll(lambda: running.metric("claw_spool_records") == 0)
            deadline = time.monotonic() + 20
            while await ready() != 200:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.1)
            before = len(kept)
            await ask(99)
            assert len(kept) == before + 1
    refused = [json.loads(body)["error"]["code"] for status, body in statuses if status != 200]
    if choice == "refuse":
        assert refused
        assert set(refused) == {"not_captured"}
        assert lost == 0
        agents = Agents("", replied=kept)
        Found.of(local_log).check(agents, duplicates=True)
    else:
        assert refused == []
        assert lost > 0


async def test_full_disk(
    local_log: LogSettings, local_broker: LocalBroker, engine: ScriptedEngine, tmp_path: Path
) -> None:
    """A disk that refuses in the middle of a write is a clear 503; what was replied before is kept."""
    with gateway(local_log, tmp_path, "--upstream", engine.url, **QUICK) as running:
        async with load(running.url) as agents:
            await poll(lambda: len(agents.replied) >= 50)
            resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (SMALL_FILE_BYTES, resource.RLIM_INFINITY))
            signal_broker(local_broker, signal.SIGSTOP)
            await poll(lambda: any(REFUSED in error for error in agents.errors))
            resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
            signal_broker(local_broker, signal.SIGCONT)
            agents.stopping = True
        await poll(lambda: running.metric("claw_spool_records") == 0)
        assert others(agents.errors) == []
    Found.of(local_log).check(agents, duplicates=True)


def others(errors: list[str]) -> list[str]:
    """What went wrong besides refusals. A stream that has begun is no longer refused, but broken off: no client takes it for a reply."""
    return [error for error in errors if REFUSED not in error and "ClientPayloadError" not in error]


async def test_disk_without_space(
    local_log: LogSettings, local_broker: LocalBroker, engine: ScriptedEngine, tmp_path: Path, small_disk: Path
) -> None:
    """A spool whose disk has no space left (ENOSPC) is a clear 503, then all is well again by itself: what was replied is
    kept, the disk is empty, and calls go on."""
    with gateway(local_log, tmp_path, "--upstream", engine.url, **QUICK) as running:
        async with load(running.url) as agents:
            await poll(lambda: len(agents.replied) >= 50)
            signal_broker(local_broker, signal.SIGSTOP)
            await poll(lambda: any(REFUSED in error for error in agents.errors))
            assert "No space left on device" in running.said
            assert SMALL_DISK_BYTES / 2 < running.metric("claw_spool_bytes") <= SMALL_DISK_BYTES
            signal_broker(local_broker, signal.SIGCONT)
            await poll(lambda: running.metric("claw_spool_records") == 0)
            seen = len(agents.replied)
            await poll(lambda: len(agents.replied) >= seen + 50)
        assert others(agents.errors) == []
    assert used_bytes(small_disk) == 0
    Found.of(local_log).check(agents, duplicates=True)


@contextlib.contextmanager
def unheard(log: LogSettings, folder: Path, *flags: str, reader: str) -> Iterator[str]:
    """URL of a gateway whose stderr is a pipe that nobody reads any more once it listens: left open, or closed."""
    where = ["--prefix", log.prefix, "--partitions", str(log.partitions), "--spool-dir", str(folder / "spool")]
    environment = {**os.environ, **QUICK, "KAFKA_BOOTSTRAP_SERVERS": log.bootstrap_servers}
    environment["CLAW_GATEWAY_ACCESS_LOG"] = "true"
    argv = [sys.executable, "-m", "claw_r1.gateway", "--port", "0", *where, *flags]
    with subprocess.Popen(argv, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            url = next(found[1] for line in process.stderr if (found := STARTED.search(line)))
            if reader == "gone":
                process.stderr.close()
            yield url
            process.terminate()
            assert process.wait(20) == 0
        finally:
            process.kill()


@pytest.mark.parametrize("reader", ["idle", "gone"])
async def test_nobody_has_to_read_the_log(
    local_log: LogSettings, local_broker: LocalBroker, engine: ScriptedEngine, tmp_path: Path, reader: str
) -> None:
    """A full pipe for stderr, or one whose reader left: refused calls are refusals, each with two lines; then
    calls are served, without the broker by the spool, and a stop is a stop."""
    engine.default = lambda received: (
        answer(received) if received.json["model"] == "tiny" else Reply({"error": {"message": "no"}}, status=422)
    )
    refused = {**ASK, "model": "none"}
    with unheard(local_log, tmp_path, "--upstream", engine.url, reader=reader) as url:
        async with aiohttp.ClientSession() as session:

            async def ask(body: object) -> int:
                async with session.post(f"{url}/t/g/v1/chat/completions", json=body) as reply:
                    await reply.read()
                    return reply.status

            for _ in range(REFUSED_CALLS // 50):
                statuses = await asyncio.wait_for(asyncio.gather(*(ask(refused) for _ in range(50))), 60)
                assert set(statuses) == {422}
            assert await ask(ASK) == 200
            signal_broker(local_broker, signal.SIGSTOP)
            assert await asyncio.wait_for(asyncio.gather(*(ask(ASK) for _ in range(20))), 30) == [200] * 20
            async with session.get(f"{url}/metrics") as reply:
                metrics = await reply.text()
            signal_broker(local_broker, signal.SIGCONT)
    assert float(re.findall(r"^claw_spool_spooled_total (\S+)$", metrics, re.MULTILINE)[0]) >= 20
    dropped = float(re.findall(r"^claw_log_lines_dropped_total (\S+)$", metrics, re.MULTILINE)[0])
    assert (dropped >= 2 * REFUSED_CALLS) is (reader == "gone")


async def test_two_gateways_share_nothing_but_the_log(
    log_settings: LogSettings, engine: ScriptedEngine, tmp_path: Path
) -> None:
    """Two gateways with one spool root, one killed: nothing lost, nothing twice, the other one never noticed."""
    flags = ("--upstream", engine.url)
    with gateway(log_settings, tmp_path, *flags) as first, gateway(log_settings, tmp_path, *flags) as second:
        async with load(first.url, 4, "x") as doomed, load(second.url, 4, "y") as spared:
            await poll(lambda: len(doomed.replied) >= 50 and len(spared.replied) >= 50)
            first.kill()
            doomed.stopping = True
            seen = len(spared.replied)
            await poll(lambda: len(spared.replied) >= seen + 50)
    assert spared.errors == []
    Found.of(log_settings).check(doomed, spared)


async def test_workers_on_one_port(log_settings: LogSettings, engine: ScriptedEngine, tmp_path: Path) -> None:
    """Two workers share the port's load. One that is stopped is replaced, with no error that a client sees; one that is
    killed costs the calls it had, and nothing that was acknowledged."""
    metrics = neighbours()
    flags = ("--upstream", engine.url, "--metrics-port", str(metrics))
    with gateway(log_settings, tmp_path, *flags, workers=2) as running:

        def served(number: int) -> float:
            """Each worker tells of itself, once it listens: the other one may answer calls before."""
            with contextlib.suppress(urllib.error.URLError):
                return running.metric("claw_gateway_request_seconds_count", f"http://127.0.0.1:{metrics + number}")
            return 0.0

        async with load(running.url, 16) as agents:
            await poll(lambda: len(agents.replied) >= 100)
            await poll(lambda: min(map(served, range(2))) > 10)  # in time: the kernel throws dice for each connection
            stopped, killed = running.workers
            stopped.send_signal(signal.SIGTERM)
            await poll(lambda: not stopped.is_running() and len(running.workers) == 2)
            seen = len(agents.replied)
            await poll(lambda: len(agents.replied) >= seen + 100)
            assert agents.errors == []
            assert agents.refused == 0
            killed.kill()
            await poll(lambda: not killed.is_running() and len(running.workers) == 2)
            seen = len(agents.replied)
            await poll(lambda: len(agents.replied) >= seen + 100)
        assert agents.refused == 0
        assert len(agents.errors) <= 16
        assert running.stop() == 0
    assert not psutil.pid_exists(stopped.pid)
    Found.of(log_settings).check(agents)


@pytest.mark.parametrize("workers", [in_soak(1), 2])
async def test_stop_under_load(log_settings: LogSettings, engine: ScriptedEngine, tmp_path: Path, workers: int) -> None:
    """SIGTERM under load: every request that was taken is answered, and the exit code is 0."""
    engine.default = lambda asked: replace(
        answer(asked), delay_s=random.uniform(0, 0.1), pace_s=random.uniform(0, 0.03)
    )
    for number in range(SOAK or 1):
        with gateway(log_settings, tmp_path, "--upstream", engine.url, workers=workers) as running:
            async with load(running.url, 32, name=f"w{workers}-{number}-") as agents:
                await poll(lambda agents=agents: len(agents.replied) >= 200)  # type: ignore[misc]  # a lambda with a default
                code = await asyncio.to_thread(running.stop)
                agents.stopping = True
            assert (code, agents.errors) == (0, [])
            assert agents.refused > 0, "after the stop nobody listens"
        Found.of(log_settings).check(agents)


def test_workers_end_with_their_parent(log_settings: LogSettings, engine: ScriptedEngine, tmp_path: Path) -> None:
    """kill -9 of the parent leaves no worker behind."""
    with gateway(log_settings, tmp_path, "--upstream", engine.url, workers=2) as running:
        workers = running.workers
        assert len(workers) == 2
        running.kill()
        gone, alive = psutil.wait_procs(workers, timeout=20)
        assert (len(gone), alive) == (2, [])
