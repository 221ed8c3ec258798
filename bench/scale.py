"""More processes, and other hosts: `python -m bench.scale [--only PART]`. A table and bench/out/scale.json.

`streams`: facts per second of wall time from the first that is published to the last
that is folded, by one worker and by three. `gateways`: calls per second of one process
and of four behind one port. Both ratios are of one machine with the load, the broker
and the upstream on it: on two cores they do not say how far more processes go.

`wire`: one call after the other through a gateway, everything on one host and each
process on its own (network namespaces; needs root), milliseconds at the client.
"""

import argparse
import contextlib
import functools
import json
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.datapool_folds import PARTITIONS, wait_folded
from bench.episodes import load as episodes
from bench.episodes import outgoing, publish
from bench.gateway_ground import ASK, ENTRY, KEY, Result, ground, load
from bench.measured_process import Measured, running
from bench.report import Figures, Targets, in_child, run
from claw_r1.claw.local.broker import resolve_broker
from claw_r1.claw.local.kafka.node import new_cluster_id
from claw_r1.eventlog.kafka.admin import create_topics, end_offsets
from claw_r1.eventlog.settings import LogSettings
from claw_r1.runtime.child import module_argv
from claw_r1.schemas.topics import CALLS, REWARDS
from tests.e2e.hosts import Host, Switch
from tests.patience import until

TARGETS: Targets = {}
PARTS = ("streams", "gateways", "wire")
"""Functions of this module; each runs in a process of its own."""
GROUPS, WORKERS = 160, (1, 3)
CALLS_MANY, IN_FLIGHT, GATEWAYS = 3000, 64, (1, 4)
CALLS_ONE_BY_ONE = 500
REPEATS = 3
UPSTREAM, GATEWAY = 8100, 8000
DOOR = {
    "CLAW_LOG_PARTITIONS": "8",
    "CLAW_GATEWAY_API_KEYS": ENTRY,
}


def streams() -> Figures:
    """Medians of repeats that are interleaved."""
    facts = [*map(outgoing, episodes(GROUPS))]
    with resolve_broker() as broker, tempfile.TemporaryDirectory() as folder:

        def per_second(workers: int) -> float:
            log = LogSettings(bootstrap_servers=broker.bootstrap, prefix=_name(), partitions=PARTITIONS)
            create_topics(log)
            environment = {
                "KAFKA_BOOTSTRAP_SERVERS": log.bootstrap_servers,
                "CLAW_LOG_PREFIX": log.prefix,
                "CLAW_LOG_PARTITIONS": str(PARTITIONS),
                "CLAW_STREAMS_REACTORS_ENABLED": "false",
            }
            with contextlib.ExitStack() as stack:
                for number in range(workers):
                    said = Path(folder) / f"{log.prefix}-{number}.log"
                    stack.enter_context(running("claw_r1.streams", ready="streams_assigned", log=said, **environment))
                began = time.monotonic()
                publish(log, facts)
                wait_folded(log, end_offsets(log, [CALLS, REWARDS]))
                return len(facts) / (time.monotonic() - began)

        return _compared("stream_facts_per_s", "streams_ratio", WORKERS, per_second)


def gateways() -> Figures:
    """Medians of repeats that are interleaved."""
    with resolve_broker() as broker, tempfile.TemporaryDirectory() as folder:

        def per_second(workers: int) -> float:
            with ground(broker.bootstrap, Path(folder), workers=workers) as here:
                load(here.gateway_port, IN_FLIGHT, 500)
                done = load(here.gateway_port, IN_FLIGHT, CALLS_MANY)
                assert not done["errors"], done["errors"]
                return float(done["rps"])

        return _compared("gateway_calls_per_s", "gateways_ratio", GATEWAYS, per_second)


def _compared(name: str, ratio: str, counts: tuple[int, int], measure: Callable[[int], float]) -> Figures:
    rounds = [{count: measure(count) for count in counts} for _ in range(REPEATS)]
    few, many = (statistics.median(each[count] for each in rounds) for count in counts)
    return {
        f"{name}_{counts[0]}": round(few),
        f"{name}_{counts[1]}": round(many),
        ratio: round(many / few, 2),
    }


def wire() -> Figures:
    """Both sides in turn."""
    with tempfile.TemporaryDirectory() as folder, _on_hosts(folder, 1) as near, _on_hosts(folder, 4) as far:
        sides = {"one_host": near, "four_hosts": far}
        for call in sides.values():
            call(100)
        rounds = [{name: call(CALLS_ONE_BY_ONE) for name, call in sides.items()} for _ in range(REPEATS)]
    middle = {name: statistics.median(each[name] for each in rounds) for name in sides}
    figures = {f"wire_{name}_ms": round(ms, 2) for name, ms in middle.items()}
    return {**figures, "wire_ratio": round(middle["four_hosts"] / middle["one_host"], 2)}


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
            words = [sys.executable, "-m", "bench.http_load", json.dumps({**ask, "calls": calls, "name": _name()})]
            return _median(json.loads(client.run(words, {})))

        yield call
    finally:
        switch.close()


def _start(folder: Path, host: Host, ready: str, module: str, *words: str, **environment: str) -> Measured:
    said = folder / f"{module}.log"
    process = host.start([sys.executable, "-m", module, *words], environment, said)
    until(lambda: ready in said.read_text(), said.read_text)
    return Measured(process)


def _median(done: Result) -> float:
    assert not done["errors"], done["errors"]
    return statistics.median(done["total_ms"])


def _name() -> str:
    return f"bench{uuid.uuid4().hex[:8]}"


def main() -> int:
    """0: measured, whatever the figures say; 1: a part could not be measured."""
    parser = argparse.ArgumentParser(prog="bench.scale", description=__doc__)
    parser.add_argument("--only", choices=PARTS, action="append", help="measure this part (may be given again)")
    parts = parser.parse_args().only or PARTS
    return run("scale", {part: in_child(part, "bench.scale", part) for part in parts}, TARGETS)


if __name__ == "__main__":
    sys.exit(main())
