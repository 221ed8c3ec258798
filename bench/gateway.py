"""The costs of the gateway: `python -m bench.gateway`, a table on stderr and `bench/out/gateway.json`.

CPU is that of the gateway process with all its threads, per finished call. The floor is a proxy on asyncio (uvloop) that
forwards bytes verbatim and follows only their framing, in the same run: machines differ by two and change within minutes, so ratios count and repeats are
interleaved; every figure is the median of the repeats. Upstream and load are processes of their own. The broker is real
(`KAFKA_BOOTSTRAP_SERVERS`, else a local node), acks=all; keys, routing from the workers topic and limits are on.
"""

import argparse
import asyncio
import json
import resource
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from bench.gateway_ground import ASK, KEY, KEYS_MANY, PROTOCOLS, Ground, Result, broker, ground, load, spent
from claw_r1.claw.local.kafka.node import LocalBroker
from claw_r1.claw.tls.tls_dir import TlsDir

OUT = Path("bench/out/gateway.json")
IN_FLIGHT, STREAMS, CROWD = 32, 32, 400
CHUNKS, PACE_MS, DELAY_MS = 100, 10, 1000
CROWD_CALLS = 8 * CROWD
IDLE_STREAMS = 2000
IDLE_PACE_MS = 600_000
LONG_CHUNKS = 30_000
PING_S = 0.002
"""Between two looks at whether others are served while a long stream passes."""


def main() -> int:
    """Measure and report; 0 when every target is met, 1 when one is missed."""
    given = argparse.ArgumentParser(prog="bench.gateway", description=__doc__.partition("\n")[0])
    given.add_argument("--repeats", type=int, default=5, help="interleaved repeats of everything (5)")
    given.add_argument("--calls", type=int, default=1500, help="calls per repeat (1500)")
    given.add_argument("--rss-calls", type=int, default=8000, help="calls over which memory is watched (8000)")
    given.add_argument("--json", action="store_true", help="the JSON on stdout, too")
    asked = given.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # thousands of sockets, here and in what is started here
    with tempfile.TemporaryDirectory() as folder, broker(Path(folder)) as bootstrap:
        tls = TlsDir(Path(folder) / "tls").prepared()
        with LocalBroker(Path(folder) / "secured", tls=tls) as secured:
            figures, notes = measure(bootstrap, secured, Path(folder), asked.repeats, asked.calls, asked.rss_calls)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(figures, indent=2) + "\n")
    missed = report(figures, notes)
    if asked.json:
        print(json.dumps(figures))
    return 1 if missed else 0


def measure(
    bootstrap: str, secured: LocalBroker, folder: Path, repeats: int, calls: int, rss_calls: int
) -> tuple[Result, list[str]]:
    """All figures in the issue's keys, and lines that explain them."""
    with ground(bootstrap, folder, secured) as here:
        load(here.gateway_port, IN_FLIGHT, 300)
        load(here.crowded_port, IN_FLIGHT, 300)
        load(here.floor_port, IN_FLIGHT, 300)
        load(here.traced_port, IN_FLIGHT, 300)
        load(here.secured_port, IN_FLIGHT, 300, authority=here.authority)
        rounds = [one_round(here, calls) for _ in range(repeats)]
    idle_mb = idle_streams_mb(bootstrap, folder)
    rss = memory_slope(bootstrap, folder, rss_calls)

    def middle(read: Callable[[Result], float]) -> float:
        return round(statistics.median(read(one) for one in rounds), 4)

    figures: Result = {
        "calls": {
            "ours": {
                "cpu_ms": middle(lambda r: r["ours_ms"]),
                "p50_ms": middle(lambda r: percentile(r["calls"]["total_ms"], 50)),
                "p99_ms": middle(lambda r: percentile(r["calls"]["total_ms"], 99)),
                "rps": middle(lambda r: r["calls"]["rps"]),
            },
            "floor": {"cpu_ms": middle(lambda r: r["floor_ms"])},
        },
        "stream": {
            "ours": {
                "cpu_us_per_chunk": middle(lambda r: r["paced_us"]),
                "ttft_ms": middle(lambda r: percentile(r["paced"]["first_ms"], 50)),
            },
            "floor": {"cpu_us_per_chunk": middle(lambda r: r["paced_floor_us"])},
        },
        "in_flight_400": {
            "direct_rps": middle(lambda r: r["direct_crowd"]["rps"]),
            "ours_rps": middle(lambda r: r["crowd"]["rps"]),
            "direct_p99_ms": middle(lambda r: percentile(r["direct_crowd"]["total_ms"], 99)),
            "ours_p99_ms": middle(lambda r: percentile(r["crowd"]["total_ms"], 99)),
        },
        "tap_floor_ratio": middle(lambda r: r["ours_ms"] / r["floor_ms"]),
        "call_ratio": {name: middle(lambda r, name=name: r[f"{name}_ms"] / r["ours_ms"]) for name in PROTOCOLS},
        "chunk_ratio": {name: middle(lambda r, name=name: r[f"{name}_us"] / r["paced_us"]) for name in PROTOCOLS},
        "burst_400": middle(lambda r: r["burst"]["rps"] / r["direct_burst"]["rps"]),
        "single_cpu_ratio": middle(lambda r: r["single_ms"] / r["ours_ms"]),
        "scraped_ratio": middle(lambda r: r["scraped_ms"] / r["ours_ms"]),
        "traced_ratio": middle(lambda r: r["traced_ms"] / r["ours_ms"]),
        "tls_ratio": middle(lambda r: r["secured_ms"] / r["ours_ms"]),
        "keys_ratio": middle(lambda r: r["crowded_ms"] / r["ours_ms"]),
        "long_stream_hold_ms": {name: middle(lambda r, name=name: r["hold_ms"][name]) for name in ("chat", *PROTOCOLS)},
        "rss_bytes_per_call": round(rss, 1),
        f"idle_streams_{IDLE_STREAMS}_mb": round(idle_mb, 1),
    }
    notes = [
        f"upstream {middle(lambda r: r['upstream_ms'])} and load generator {middle(lambda r: r['load_ms'])} CPU-ms per call",
        f"captured calls, ratio per repeat: {[round(one['ours_ms'] / one['floor_ms'], 1) for one in rounds]}",
        f"streams, ratio per repeat: {[round(one['paced_us'] / one['paced_floor_us'], 2) for one in rounds]}",
        f"errors: {sum(sum(each.get('errors', {}).values()) for one in rounds for each in one.values() if isinstance(each, dict))}",
    ]
    return figures, notes


def one_round(here: Ground, calls: int) -> Result:
    """Each kind of load once, ours and the floor next to each other."""
    floor_calls, floor_s = spent(here.floor, lambda: load(here.floor_port, IN_FLIGHT, calls))
    upstream_s = here.upstream.cpu_s()
    ours_calls, ours_s = spent(here.gateway, lambda: load(here.gateway_port, IN_FLIGHT, calls))
    upstream_s = here.upstream.cpu_s() - upstream_s
    found: Result = {
        "calls": ours_calls,
        "ours_ms": 1000 * ours_s / max(1, ours_calls["done"]),
        "floor_ms": 1000 * floor_s / max(1, floor_calls["done"]),
        "upstream_ms": 1000 * upstream_s / calls,
        "load_ms": 1000 * ours_calls["load_cpu_s"] / calls,
        "direct_crowd": load(here.upstream_port, CROWD, CROWD_CALLS, ramp_s=1.0, bench_delay_ms=DELAY_MS),
        "crowd": load(here.gateway_port, CROWD, CROWD_CALLS, ramp_s=1.0, bench_delay_ms=DELAY_MS),
    }
    found |= against_chat(here, calls)
    found["hold_ms"] = {name: longest_wait_ms(here.gateway_port, name) for name in ("chat", *PROTOCOLS)}
    ask: dict[str, Any] = {"stream": True, "bench_chunks": CHUNKS, "bench_pace_ms": PACE_MS}
    floor, floor_s = spent(here.floor, partial(load, here.floor_port, STREAMS, 2 * STREAMS, **ask))
    found["paced"], ours_s = spent(here.gateway, partial(load, here.gateway_port, STREAMS, 2 * STREAMS, **ask))
    found["paced_us"] = 1e6 * ours_s / CHUNKS / max(1, found["paced"]["done"])
    found["paced_floor_us"] = 1e6 * floor_s / CHUNKS / max(1, floor["done"])
    return found


def against_chat(here: Ground, calls: int) -> Result:
    """The other protocols, one call at a time, and all calls at once."""
    single, single_s = spent(here.gateway, lambda: load(here.gateway_port, 1, calls // 5))
    crowded, crowded_s = spent(here.crowded, lambda: load(here.crowded_port, IN_FLIGHT, calls))
    traced, traced_s = spent(here.traced, lambda: load(here.traced_port, IN_FLIGHT, calls))
    with scraped(here.gateway_port):
        scraped_calls, scraped_s = spent(here.gateway, lambda: load(here.gateway_port, IN_FLIGHT, calls))
    assert here.secured
    work = partial(load, here.secured_port, IN_FLIGHT, calls, authority=here.authority)
    secured, secured_s = spent(here.secured, work)
    found: Result = {
        "scraped": scraped_calls,
        "scraped_ms": 1000 * scraped_s / max(1, scraped_calls["done"]),
        "traced": traced,
        "traced_ms": 1000 * traced_s / max(1, traced["done"]),
        "secured": secured,
        "secured_ms": 1000 * secured_s / max(1, secured["done"]),
        "crowded": crowded,
        "crowded_ms": 1000 * crowded_s / max(1, crowded["done"]),
        "single": single,
        "single_ms": 1000 * single_s / max(1, single["done"]),
        "direct_burst": load(here.upstream_port, CROWD, CROWD_CALLS // 2, bench_delay_ms=DELAY_MS),
        "burst": load(here.gateway_port, CROWD, CROWD_CALLS // 2, bench_delay_ms=DELAY_MS),
    }
    for name in PROTOCOLS:
        work = partial(load, here.gateway_port, IN_FLIGHT, calls, protocol=name)
        found[name], cpu_s = spent(here.gateway, work)
        found[f"{name}_ms"] = 1000 * cpu_s / max(1, found[name]["done"])
        ask = {"stream": True, "bench_chunks": CHUNKS, "bench_pace_ms": PACE_MS}
        work = partial(load, here.gateway_port, STREAMS, 2 * STREAMS, protocol=name, **ask)
        found[f"{name}_stream"], cpu_s = spent(here.gateway, work)
        found[f"{name}_us"] = 1e6 * cpu_s / CHUNKS / max(1, found[f"{name}_stream"]["done"])
    return found


@contextmanager
def scraped(port: int) -> Iterator[None]:
    """Somebody asks for the metrics, at once and then each second, while the block lasts."""
    over = threading.Event()

    def ask() -> None:
        question = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"x-api-key": KEY})
        while True:
            urllib.request.urlopen(question, timeout=10).read()
            if over.wait(1.0):
                return

    with ThreadPoolExecutor(1) as thread:
        asking = thread.submit(ask)
        try:
            yield
        finally:
            over.set()
            asking.result()


def longest_wait_ms(port: int, protocol: str) -> float:
    """The longest that another request waited while a stream of `LONG_CHUNKS` passed and ended."""
    with ThreadPoolExecutor(1) as thread:
        ask = {"stream": True, "bench_chunks": LONG_CHUNKS}
        stream = thread.submit(load, port, 1, 1, protocol=protocol, **ask)
        return uvloop.run(longest_ping_ms(port, stream.done))


async def longest_ping_ms(port: int, over: Callable[[], bool]) -> float:
    """Asks for something that costs nothing, on one connection, until it is over."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    longest_s = 0.0
    while not over():
        asked_s = time.perf_counter()
        writer.write(b"GET /livez HTTP/1.1\r\nhost: bench\r\n\r\n")
        await reader.readuntil(b"}")
        longest_s = max(longest_s, time.perf_counter() - asked_s)
        await asyncio.sleep(PING_S)
    writer.close()
    return 1000 * longest_s


def memory_slope(bootstrap: str, folder: Path, calls: int) -> float:
    """Bytes of resident memory per finished call, by least squares over the second half; caches are full by then."""
    small = {"CLAW_GATEWAY_REPLAY_BYTES_MAX": str(1 << 20), "CLAW_GATEWAY_PARENT_BYTES_MAX": str(1 << 20)}
    step = max(200, calls // 40)
    samples: list[tuple[float, float]] = []
    with ground(bootstrap, folder, **small) as here:
        for done in range(step, calls + 1, step):
            load(here.gateway_port, IN_FLIGHT, step)
            samples.append((done, here.gateway.rss_bytes()))
    settled = samples[len(samples) // 2 :]
    return statistics.linear_regression([x for x, _ in settled], [y for _, y in settled]).slope


def idle_streams_mb(bootstrap: str, folder: Path) -> float:
    """Resident megabytes of the gateway with many streams open that have said one chunk and wait for the next one."""
    with ground(bootstrap, folder) as here:
        load(here.gateway_port, IN_FLIGHT, 300)
        before, found = here.gateway.rss_bytes(), list[int]()
        uvloop.run(with_streams(here.gateway_port, lambda: found.append(here.gateway.rss_bytes())))
    return (found[0] - before) / 1e6


async def with_streams(port: int, look: Callable[[], None]) -> None:
    """Calls `look` while all of them are open, each with its first chunk read."""
    body = json.dumps({**ASK, "stream": True, "bench_chunks": 2, "bench_pace_ms": IDLE_PACE_MS}).encode()
    writers = []
    for number in range(IDLE_STREAMS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        path = f"POST /idle{number}/g/v1/chat/completions HTTP/1.1\r\nhost: bench\r\nx-api-key: {KEY}\r\n"
        writer.write(f"{path}content-length: {len(body)}\r\n\r\n".encode() + body)
        await reader.readuntil(b"data: ")
        writers.append(writer)
    look()
    for writer in writers:
        writer.close()


def percentile(values: list[float], share: int) -> float:
    """Returns the percentile of a sample; NaN of an empty one."""
    if not values:
        return float("nan")
    return sorted(values)[min(len(values) - 1, len(values) * share // 100)]


def report(figures: Result, notes: list[str]) -> int:
    """The table; returns how many targets are missed."""
    stream, crowd = figures["stream"], figures["in_flight_400"]
    rows = [
        ("captured call / floor", figures["tap_floor_ratio"], 20, "x"),
        *((f"{name} / chat", ratio, 1.15, "x per call") for name, ratio in figures["call_ratio"].items()),
        *((f"{name} / chat", ratio, 1.25, "x per chunk") for name, ratio in figures["chunk_ratio"].items()),
        ("400 at once, missing throughput", 100 * (1 - figures["burst_400"]), 25, "%"),
        (f"{KEYS_MANY} keys / one key", figures["keys_ratio"], 1.03, "x per call"),
        ("metrics asked for each second / not", figures["scraped_ratio"], 1.02, "x per call"),
        ("each call told to a receiver / not", figures["traced_ratio"], 1.15, "x per call"),
        ("by TLS from the client and to Kafka / without", figures["tls_ratio"], 1.25, "x per call"),
        ("a call alone / one of 32", figures["single_cpu_ratio"], 1.3, "x"),
        (
            "streams / floor",
            stream["ours"]["cpu_us_per_chunk"] / stream["floor"]["cpu_us_per_chunk"],
            2.5,
            "x per chunk",
        ),
        ("400 in flight, missing throughput", 100 * (1 - crowd["ours_rps"] / crowd["direct_rps"]), 5, "%"),
        *(
            (f"others wait for {LONG_CHUNKS} chunks: {name}", wait_ms, 50, "ms")
            for name, wait_ms in figures["long_stream_hold_ms"].items()
        ),
        ("memory", figures["rss_bytes_per_call"], 50, "bytes per call"),
        (f"{IDLE_STREAMS} idle streams", figures[f"idle_streams_{IDLE_STREAMS}_mb"], 100, "MB"),
    ]
    for name, value, target, unit in rows:
        print(
            f"{name:36} {value:8.2f}  (at most {target} {unit}){'' if value <= target else '  MISSED'}", file=sys.stderr
        )
    print(json.dumps(figures, indent=2), *notes, sep="\n", file=sys.stderr)
    return sum(not value <= target for _, value, target, _ in rows)


if __name__ == "__main__":
    raise SystemExit(main())
