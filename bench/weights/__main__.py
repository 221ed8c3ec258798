"""The travel of versions to the engines: pauses, transfers, patches, and what a loop and a host pay for them.

Real vLLM on the CPU; 57 M float32 parameters, 228 MB, unless a part says otherwise. Both sides of a ratio run in one process
of their own, take turns, and give medians; under 40 minutes. Lent are two cores: with less to run on, the figures about
throughput say more about the machine. What each figure means: docs/fleet.md.
"""

from bench.report import Bench

PARTS = ("pause", "adapter", "transfer", "carrier", "halt", "patch", "throughput")
BENCH = Bench(
    name="weights",
    about=__doc__,
    parts={part: f"bench.weights.parts:{part}" for part in PARTS},
    sizes={"repeats": 7},
    targets={
        "pause_ratio": ("<=", 1.2),
        "adapter_bytes_ratio": ("<=", 0.1),
        "adapter_ratio": ("<=", 0.1),
        "transfer_ratio": ("<=", 2),
        "transfer_host_ratio": ("<=", 0.3),
        "carrier_ratio": ("<=", 1.5),
        "trainer_halt_ratio": ("<=", 3),
        "host_copies": ("<=", 2),
        "patch_bytes_ratio": ("<=", 0.04),
        "patch_cpu_ratio": ("<=", 1),
        "throughput_kept_demo": (">=", 0.95),
        "throughput_kept": (">=", 0.75),
        "fleet_ratio": ("<=", 2),
    },
)

if __name__ == "__main__":
    BENCH.main()
