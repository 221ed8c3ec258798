"""The parts of `bench.gateway`: loads on the doors of `bench.gateway.ground`, those of a round one after the other."""

import asyncio
import json
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import uvloop

from bench.gateway.ground import ASK, KEY, PROTOCOLS, Door, ground
from bench.medians import medians, percentile
from bench.report import Figures

IN_FLIGHT, STREAMS, CROWD = 32, 32, 400
CHUNKS, PACE_MS, DELAY_MS = 100, 10, 1000
CROWD_CALLS = 8 * CROWD
IDLE_STREAMS = 2000
IDLE_PACE_MS = 600_000
LONG_CHUNKS = 30_000
PING_S = 0.002
"""Between two looks at whether others are served while a long stream passes."""
SMALL_MEMORIES = {"CLAW_GATEWAY_REPLAY_BYTES_MAX": str(1 << 20), "CLAW_GATEWAY_PARENT_BYTES_MAX": str(1 << 20)}


def calls(repeats: int, calls: int) -> Figures:
    """Whole replies: CPU of a call by protocol, alone, traced and by TLS (from the client and to Kafka)."""
    with ground("floor", "plain", "traced", "secured") as doors:
        plain = doors["plain"]
        sides: dict[str, Callable[[], float]] = {
            **{name: partial(doors[name].cpu_ms, IN_FLIGHT, calls) for name in ("floor", "traced", "secured")},
            **{name: partial(plain.cpu_ms, IN_FLIGHT, calls, protocol=name) for name in PROTOCOLS},
            "single": partial(plain.cpu_ms, 1, max(1, calls // 5)),
        }
        ms = medians([{name: side() for name, side in sides.items()} for _ in range(repeats)])
        done = plain.load(IN_FLIGHT, calls)
    return {
        "tap_floor_ratio": ms["chat"] / ms["floor"],
        "call_ratio": {name: ms[name] / ms["chat"] for name in PROTOCOLS if name != "chat"},
        "single_cpu_ratio": ms["single"] / ms["chat"],
        "traced_ratio": ms["traced"] / ms["chat"],
        "tls_ratio": ms["secured"] / ms["chat"],
        "calls": {
            "cpu_ms": ms["chat"],
            "floor_cpu_ms": ms["floor"],
            "p50_ms": percentile(done["total_ms"], 50),
            "p99_ms": percentile(done["total_ms"], 99),
            "rps": done["rps"],
        },
    }


def streams(repeats: int) -> Figures:
    """Paced streams: CPU of a chunk by protocol, and how long others wait while one of very many chunks passes."""
    ask: dict[str, Any] = {"stream": True, "bench_chunks": CHUNKS, "bench_pace_ms": PACE_MS}
    with ground("floor", "plain") as doors:
        plain = doors["plain"]
        sides = {name: partial(plain.cpu_ms, STREAMS, 2 * STREAMS, protocol=name, **ask) for name in PROTOCOLS}
        sides["floor"] = partial(doors["floor"].cpu_ms, STREAMS, 2 * STREAMS, **ask)
        ms = medians([{name: side() for name, side in sides.items()} for _ in range(repeats)])
        hold_ms = medians([{name: longest_wait_ms(plain, name) for name in PROTOCOLS} for _ in range(repeats)])
        first_ms = plain.load(STREAMS, 2 * STREAMS, **ask)["first_ms"]
    return {
        "stream_floor_ratio": ms["chat"] / ms["floor"],
        "chunk_ratio": {name: ms[name] / ms["chat"] for name in PROTOCOLS if name != "chat"},
        "long_stream_hold_ms": hold_ms,
        "stream": {"cpu_us_per_chunk": 1000 * ms["chat"] / CHUNKS, "ttft_ms": percentile(first_ms, 50)},
    }


def crowds(repeats: int) -> Figures:
    """Throughput of 400 at once at an engine that takes a second, by that without a gateway: begun one after the other, and in
    one moment."""
    ways = {"in_flight_400": {"calls": CROWD_CALLS, "ramp_s": 1.0}, "burst_400": {"calls": CROWD_CALLS // 2}}
    with ground("plain") as doors:

        def rps(door: str, **way: float) -> float:
            return float(doors[door].load(CROWD, bench_delay_ms=DELAY_MS, **way)["rps"])

        return medians(
            [{name: rps("plain", **way) / rps("upstream", **way) for name, way in ways.items()} for _ in range(repeats)]
        )


def memory(rss_calls: int) -> Figures:
    """Bytes that stay of a call, and megabytes of many streams that wait."""
    slope = memory_slope(rss_calls)
    return {"rss_bytes_per_call": slope, f"idle_streams_{IDLE_STREAMS}_mb": idle_streams_mb()}


def longest_wait_ms(door: Door, protocol: str) -> float:
    """The longest that another request waited while a stream of `LONG_CHUNKS` passed and ended."""
    with ThreadPoolExecutor(1) as thread:
        stream = thread.submit(door.load, 1, 1, protocol=protocol, stream=True, bench_chunks=LONG_CHUNKS)
        longest: float = uvloop.run(longest_ping_ms(door.port, stream.done))
        stream.result()
    return longest


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


def memory_slope(calls: int) -> float:
    """Bytes of resident memory per finished call, by least squares over the second half; caches are full by then."""
    step = max(200, calls // 40)
    samples: list[tuple[float, float]] = []
    with ground("plain", **SMALL_MEMORIES) as doors:
        for done in range(step, calls + 1, step):
            doors["plain"].load(IN_FLIGHT, step)
            samples.append((done, doors["plain"].process.rss_bytes()))
    settled = samples[len(samples) // 2 :]
    return statistics.linear_regression([x for x, _ in settled], [y for _, y in settled]).slope


def idle_streams_mb() -> float:
    """Resident megabytes of the gateway with many streams open that have said one chunk and wait for the next one."""
    with ground("plain") as doors:
        gateway = doors["plain"]
        before, resident = gateway.process.rss_bytes(), list[int]()
        uvloop.run(with_streams(gateway.port, lambda: resident.append(gateway.process.rss_bytes())))
    return (resident[0] - before) / 1e6


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
