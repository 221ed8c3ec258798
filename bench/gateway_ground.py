"""The ground of `bench.gateway`: a broker, an upstream, proxies and gateways, each a process of its own, and a load."""

import contextlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.measured_process import Measured, running
from claw_r1.claw.keys.records import append
from claw_r1.claw.local.kafka.node import LocalBroker
from claw_r1.claw.local.ports import free_ports
from claw_r1.eventlog.kafka.admin import create_topics
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.api_keys import new_key
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import KeyRecorded, WorkerReported
from claw_r1.schemas.topics import WORKERS

KEYS_MANY = 10_000
KEY, ENTRY = new_key("operator")
ASK = {"model": "bench", "messages": [{"role": "user", "content": "x" * 1900}], "temperature": 1.0}
PROTOCOLS: dict[str, tuple[str, dict[str, Any]]] = {
    "completions": ("completions", {"model": "bench", "prompt": "x" * 1900, "temperature": 1.0}),
    "responses": ("responses", {"model": "bench", "input": ASK["messages"], "temperature": 1.0}),
    "messages": ("messages", {**ASK, "max_tokens": 512}),
}
"""Beside chat: the route, and a request of the same size."""
Result = dict[str, Any]  # JSON of bench.http_load


@dataclass(frozen=True)
class Ground:
    """The measured processes: three addresses, three processes."""

    upstream_port: int
    floor_port: int
    gateway_port: int
    upstream: Measured
    floor: Measured
    gateway: Measured
    crowded_port: int
    crowded: Measured
    """A gateway that knows 10,000 keys."""
    secured_port: int
    secured: Measured | None
    """A gateway by https, on a Kafka by TLS and password; None where nobody asked for one."""
    authority: str
    """The file of whoever signed its certificate."""
    traced_port: int
    traced: Measured
    """A gateway that tells the upstream, which takes it, of each call."""


@contextlib.contextmanager
def broker(folder: Path) -> Iterator[str]:
    """A given broker, or a node for this run."""
    if given := os.environ.get("KAFKA_BOOTSTRAP_SERVERS"):
        yield given
    else:
        with LocalBroker(folder / "broker") as local:
            yield local.bootstrap


@contextlib.contextmanager
def ground(
    bootstrap: str, folder: Path, secured: LocalBroker | None = None, workers: int = 1, **settings: str
) -> Iterator[Ground]:
    """Everything running, the upstream reported as a worker. secured: a node with `tls`, for a gateway before it.
    workers: processes of the measured gateway."""
    upstream_port, floor_port, gateway_port, crowded_port, secured_port, traced_port = free_ports(6)
    run = folder / uuid.uuid4().hex[:6]
    run.mkdir()
    with contextlib.ExitStack() as stack:

        def start(module: str, name: str, *words: str, ready: str = "listening", **environment: str) -> Measured:
            return stack.enter_context(running(module, *words, ready=ready, log=run / name, **environment))

        def start_gateway(
            name: str, port: int, keys: int = 1, node: LocalBroker | None = None, **more: str
        ) -> Measured:
            servers, access = (node.bootstrap, access_of(node)) if node else (bootstrap, {})
            log = LogSettings(
                bootstrap_servers=servers, prefix=f"bench{uuid.uuid4().hex[:8]}", partitions=8, **_fields(access)
            )
            create_topics(log)
            report_worker(log, f"http://127.0.0.1:{upstream_port}")
            record_keys(log, keys)
            where = ("--bootstrap-servers", servers, "--prefix", log.prefix, "--partitions", str(log.partitions))
            environment = {
                "CLAW_GATEWAY_WORKER_TTL_S": "86400",
                "CLAW_GATEWAY_API_KEYS": ENTRY,
                **access,
                **settings,
                **more,
            }
            spool = {"CLAW_GATEWAY_SPOOL_DIR": str(run / f"spool-{name}")}
            return start(
                "claw_r1.gateway", name, "--port", str(port), *where, ready="gateway_listening", **environment, **spool
            )

        yield Ground(
            upstream_port,
            floor_port,
            gateway_port,
            start("bench.scripted_upstream", "upstream", str(upstream_port)),
            start("bench.byte_proxy", "floor", str(floor_port), str(upstream_port)),
            start_gateway("gateway", gateway_port, CLAW_GATEWAY_WORKERS=str(workers)),
            crowded_port,
            start_gateway("crowded", crowded_port, KEYS_MANY),
            secured_port,
            start_gateway("secured", secured_port, node=secured) if secured else None,
            str(secured.tls.authority) if secured and secured.tls else "",
            traced_port,
            start_gateway("traced", traced_port, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{upstream_port}"),
        )


def access_of(node: LocalBroker) -> dict[str, str]:
    """The variables of a gateway before a secured node."""
    return {**node.tls.kafka(), **node.tls.doors()} if node.tls else {}


def _fields(access: dict[str, str]) -> dict[str, Any]:
    """The fields of the log's settings among them."""
    front = "CLAW_LOG_"
    return {name.removeprefix(front).lower(): value for name, value in access.items() if name.startswith(front)}


def report_worker(log: LogSettings, url: str) -> None:
    """The upstream, as a rollout worker would report it."""
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


def record_keys(log: LogSettings, count: int) -> None:
    """The load's key, and so many others less one."""
    digests = [ENTRY.partition(":")[2], *(uuid.uuid4().hex * 2 for _ in range(count - 1))]
    stamp = envelope("bench")
    append(log, [KeyRecorded(envelope=stamp, digest=each, name=each, role="operator") for each in digests])


def load(
    port: int,
    connections: int,
    calls: int,
    ramp_s: float = 0.0,
    protocol: str = "chat",
    authority: str = "",
    **extra: Any,
) -> Result:
    """Calls from a process of their own; by https where an authority's file is given."""
    route, body = PROTOCOLS.get(protocol, ("chat/completions", ASK))
    ask = {
        "port": port,
        "connections": connections,
        "calls": calls,
        "ramp_s": ramp_s,
        "authority": authority,
        "body": {**body, **extra},
        "route": route,
        "key": KEY,
        "name": uuid.uuid4().hex[:8],
    }
    done = subprocess.run(
        [sys.executable, "-m", "bench.http_load", json.dumps(ask)], stdout=subprocess.PIPE, check=True
    )
    result: Result = json.loads(done.stdout)
    return result


def spent(process: Measured, work: Callable[[], Result]) -> tuple[Result, float]:
    """Returns the result of `work`, and the CPU seconds of the process meanwhile."""
    before_s = process.cpu_s()
    return work(), process.cpu_s() - before_s
