"""The parts of `bench.scale`, whose sides take turns."""

import contextlib
import functools
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.datapool.folds import streams_worker, wait_folded
from bench.episodes import load as episodes
from bench.episodes import outgoing, publish
from bench.gateway.ground import ASK, ENTRY, KEY, ground
from bench.medians import medians, percentile
from bench.processes import Measured, broker, topics_on
from bench.report import Figures
from claw_r1.claw.local.kafka.node import new_cluster_id
from claw_r1.eventlog.kafka.admin import end_offsets
from claw_r1.runtime.processes.child import module_argv
from claw_r1.schemas.topics import CALLS, REWARDS
from tests.e2e.hosts import Host, Switch
from tests.patience import until

WORKERS, GATEWAYS = (1, 3), (1, 4)
IN_FLIGHT = 64
UPSTREAM, GATEWAY = 8100, 8000
DOOR = {
    "CLAW_LOG_PARTITIONS": "8",
    "CLAW_GATEWAY_API_KEYS": ENTRY,
}


def streams(repeats: int, groups: int) -> Figures:
    """Facts per second."""
    facts = [*map(outgoing, episodes(groups))]
    with broker() as found, tempfile.TemporaryDirectory() as folder:

        def per_second(workers: int) -> float:
            log = topics_on(found.bootstrap)
            with contextlib.ExitStack() as stack:
                for number in range(workers):
                    stack.enter_context(streams_worker(log, Path(folder) / f"{log.prefix}-{number}.log"))
                began = time.monotonic()
                publish(log, facts)
                wait_folded(log, end_offsets(log, [CALLS, REWARDS]))
                return len(facts) / (time.monotonic() - began)

        return _compared("streams", WORKERS, per_second, repeats)


def gateways(repeats: int, calls: int) -> Figures:
    """Calls per second."""

    def per_second(workers: int) -> float:
        with ground("plain", CLAW_GATEWAY_WORKERS=str(workers)) as doors:
            return float(doors["plain"].load(IN_FLIGHT, calls)["rps"])

    return _compared("gateways", GATEWAYS, per_second, repeats)


def _compared(name: str, counts: tuple[int, int], measure: Callable[[int], float], repeats: int) -> Figures:
    middle = medians([{f"{name}_{count}_per_s": measure(count) for count in counts} for _ in range(repeats)])
    few, many = middle.values()
    return {**middle, f"{name}_ratio": many / few}


def wire(repeats: int, calls: int) -> Figures:
    """Milliseconds of a call, the median."""
    with tempfile.TemporaryDirectory() as folder, _on_hosts(folder, 1) as near, _on_hosts(folder, 4) as far:
        sides = {"wire_one_host_ms": near, "wire_four_hosts_ms": far}
        turns = [{name: call(max(1, calls // 6)) for name, call in sides.items()} for _ in range(repeats + 1)]
    middle = medians(turns[1:])
    return {**middle, "wire_ratio": middle["wire_four_hosts_ms"] / middle["wire_one_host_ms"]}


Call = Callable[[int], float]
"""Makes so many calls; the median of a call, ms."""


@contextlib.contextmanager
def _on_hosts(into: str, count: int) -> Iterator[Call]:
    """Broker, upstream, gateway and client, all on one host or each on its own."""
    switch, folder = Switch(), Path(into) / str(count)
    folder.mkdir()
    try:
        hosts = [switch.host(f"h{number}") for number in range(count)]
        broker, upstream, gateway, client = hosts * (4 // count)
        start = functools.partial(_start, folder)
        node = (str(folder / "broker"), new_cluster_id(), "1", broker.address)
        start(broker, "broker_ready", "tests.e2e.hosted_broker", *node)
        start(upstream, "listening", "bench.scripted_upstream", str(UPSTREAM), upstream.address)
        where = {"KAFKA_BOOTSTRAP_SERVERS": f"{broker.address}:9092", **DOOR}
        broker.run(module_argv("claw_r1.claw.cli", "topics", "create"), where)
        flags = ("--port", str(GATEWAY), "--host", gateway.address, "--spool-dir", str(folder / "spool"))
        door = ("claw_r1.gateway", *flags, "--upstream", f"http://{upstream.address}:{UPSTREAM}")
        start(gateway, "gateway_listening", *door, **where)
        ask = {"host": gateway.address, "port": GATEWAY, "connections": 1, "body": ASK, "key": KEY}

        def call(calls: int) -> float:
            words = [
                sys.executable,
                "-m",
                "bench.http_load",
                json.dumps({**ask, "calls": calls, "name": f"t{time.time_ns()}"}),
            ]
            done = json.loads(client.run(words, {}))
            assert not done["errors"], done["errors"]
            return percentile(done["total_ms"], 50)

        yield call
    finally:
        switch.close()


def _start(folder: Path, host: Host, ready: str, module: str, *words: str, **environment: str) -> Measured:
    said = folder / f"{module}.log"
    process = host.start([sys.executable, "-m", module, *words], environment, said)
    until(lambda: ready in said.read_text(), said.read_text)
    return Measured(process)
