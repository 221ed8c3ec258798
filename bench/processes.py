"""Child processes whose CPU time and memory can be read from outside, exactly; logs of their own, and a gateway on one."""

import contextlib
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from claw_r1.claw.local.broker import Broker, resolve_broker
from claw_r1.claw.local.ports import free_ports
from claw_r1.eventlog.kafka.admin import create_topics
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import WorkerReported
from claw_r1.schemas.topics import WORKERS

START_TIMEOUT_S = 60.0
PARTITIONS = 8


class Measured:
    """A running process."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process, self._proc = process, Path("/proc") / str(process.pid)

    def cpu_s(self) -> float:
        """CPU time of all its threads so far; a thread that ended takes its share with it."""
        spent_ns = 0
        for stat in self._proc.glob("task/*/schedstat"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                spent_ns += int(stat.read_text().split()[0])
        return spent_ns / 1e9

    def rss_bytes(self) -> int:
        """Resident memory."""
        return int((self._proc / "statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@contextlib.contextmanager
def running(module: str, *argv: str, ready: str, log: Path, **environment: str) -> Iterator[Measured]:
    """`python -m module` until the block ends. Raises RuntimeError when it ends before it says `ready`, TimeoutError when it does
    not say so within a minute."""
    with log.open("wb") as output:
        command = [sys.executable, "-m", module, *argv]
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **environment})
    try:
        wait_until(lambda: ready in log.read_text() or process.poll() is not None, START_TIMEOUT_S)
        if process.poll() is not None:
            raise RuntimeError(f"{module} did not start: {log.read_text()[-2000:]}")
        yield Measured(process)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def wait_until(condition: Callable[[], object], seconds: float = 240.0) -> None:
    """Raises TimeoutError when it does not come to that."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"it did not come to that within {seconds} s")
        time.sleep(0.02)


@contextlib.contextmanager
def broker() -> Iterator[Broker]:
    """The broker that `KAFKA_BOOTSTRAP_SERVERS` names, else a node of its own while the block lasts."""
    with TemporaryDirectory() as folder, resolve_broker(Path(folder)) as found:
        yield found


@contextlib.contextmanager
def new_log(partitions: int = PARTITIONS) -> Iterator[LogSettings]:
    """Topics that nobody else has, on such a broker."""
    with broker() as found:
        yield topics_on(found.bootstrap, partitions=partitions)


def topics_on(bootstrap: str, **settings: Any) -> LogSettings:  # Any: of any setting
    """Makes topics that nobody else has."""
    prefix = f"bench{uuid.uuid4().hex[:8]}"
    log = LogSettings(**{"bootstrap_servers": bootstrap, "prefix": prefix, "partitions": PARTITIONS, **settings})
    create_topics(log)
    return log


def environment_of(log: LogSettings) -> dict[str, str]:
    """Returns the variables by which a process finds the log."""
    return {
        "KAFKA_BOOTSTRAP_SERVERS": log.bootstrap_servers,
        "CLAW_LOG_PREFIX": log.prefix,
        "CLAW_LOG_PARTITIONS": str(log.partitions),
    }


@contextlib.contextmanager
def gateway(log: LogSettings, engine_port: int, folder: Path, **settings: str) -> Iterator[tuple[int, Measured]]:
    """A gateway that has an engine on that port, by its own port."""
    (port,) = free_ports(1)
    report_worker(log, f"http://127.0.0.1:{engine_port}")
    here = {
        **environment_of(log),
        "CLAW_GATEWAY_WORKER_TTL_S": "86400",
        "CLAW_GATEWAY_SPOOL_DIR": str(folder / f"spool-{port}"),
        **settings,
    }
    said = folder / f"gateway-{port}.log"
    with running("claw_r1.gateway", "--port", str(port), ready="gateway_listening", log=said, **here) as process:
        yield port, process


@contextlib.contextmanager
def listening(module: str, folder: Path, *words: str) -> Iterator[tuple[int, Measured]]:
    """A module of ours that listens on the port that is its first word."""
    (port,) = free_ports(1)
    with running(module, str(port), *words, ready="listening", log=folder / f"{module}-{port}.log") as process:
        yield port, process


def report_worker(log: LogSettings, url: str) -> None:
    """The engine, as a rollout worker would report it."""
    event = WorkerReported(
        envelope=envelope("bench"),
        worker_id="bench",
        url=url,
        model_id="bench",
        model="bench",
        state="ready",
        report_interval_s=3600.0,
    )
    producer = KafkaLog(log).producer()
    producer.publish_now(WORKERS, b"bench", event)
    producer.close()
