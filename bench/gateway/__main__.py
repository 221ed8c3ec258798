"""The costs of the gateway: calls, streams, crowds and memory, beside a proxy that only forwards bytes.

CPU is that of the gateway process with all its threads, per finished call or chunk. The floor is a proxy on asyncio (uvloop)
that forwards bytes verbatim and follows only their framing, in the same run: machines differ by two and change within minutes,
so ratios count, repeats are interleaved, and every figure is the median of the repeats. Upstream and load are processes of
their own. The broker is real (`KAFKA_BOOTSTRAP_SERVERS`, else a local node), acks=all; keys, routing and limits are on.
"""

from bench.report import Bench

PROTOCOLS = ("completions", "responses", "messages")
BENCH = Bench(
    name="gateway",
    about=__doc__,
    parts={part: f"bench.gateway.parts:{part}" for part in ("calls", "streams", "crowds", "memory")},
    sizes={"repeats": 5, "calls": 1500, "rss_calls": 8000},
    targets={
        "tap_floor_ratio": ("<=", 20),
        **{f"call_ratio.{protocol}": ("<=", 1.15) for protocol in PROTOCOLS},
        "single_cpu_ratio": ("<=", 1.3),
        "traced_ratio": ("<=", 1.15),
        "tls_ratio": ("<=", 1.25),
        "stream_floor_ratio": ("<=", 2.5),
        **{f"chunk_ratio.{protocol}": ("<=", 1.25) for protocol in PROTOCOLS},
        **{f"long_stream_hold_ms.{protocol}": ("<=", 50) for protocol in ("chat", *PROTOCOLS)},
        "in_flight_400": (">=", 0.95),
        "burst_400": (">=", 0.75),
        "rss_bytes_per_call": ("<=", 50),
        "idle_streams_2000_mb": ("<=", 100),
    },
)

if __name__ == "__main__":
    BENCH.main()
