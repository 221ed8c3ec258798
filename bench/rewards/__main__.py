"""The costs of scorers: their CPU beside a bare loop, how late rewards come, and what the sandbox takes.

CPU seconds are those of the process that does the work, of all its threads; ratios are within one run, repeats interleaved,
figures medians. The broker is real: `KAFKA_BOOTSTRAP_SERVERS`, else a local node on the same cores. What each figure means:
docs/rewards/history.md, and of the sandbox docs/rewards/sandbox.md.
"""

from bench.report import Bench

BENCH = Bench(
    name="rewards",
    about=__doc__,
    parts={
        "work": "bench.rewards.work:measure",
        "lag": "bench.rewards.lag:measure",
        "sandbox": "bench.rewards.sandbox:measure",
    },
    sizes={"calls": 6000, "repeats": 3, "seconds": 30, "runs": 400},
    targets={
        "call_ratio": ("<=", 2),
        "trajectory_ratio": ("<=", 3),
        "backfill_ratio": ("<=", 3),
        "lag_ms_p99": ("<=", 1000),
        "sandbox_ratio": ("<=", 2),
    },
)

if __name__ == "__main__":
    BENCH.main()
