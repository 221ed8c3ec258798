"""The costs of scorers: `make bench-rewards`, or `python -m bench.rewards [--only PART]`. A table and
bench/out/rewards.json.

CPU seconds are those of the process that does the work, of all its threads; ratios are within one run, repeats interleaved, figures
medians. The broker is real: `KAFKA_BOOTSTRAP_SERVERS`, else a local node on the same cores. A part that was not measured keeps the
figures of its last run. What each figure means: docs/rewards.md.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.gateway_ground import broker
from bench.report import Measure, Targets, run

TARGETS: Targets = {
    "call_ratio": ("<=", 2),
    "trajectory_ratio": ("<=", 3),
    "backfill_ratio": ("<=", 3),
    "lag_ms_p99": ("<=", 1000),
    "fleet_ratio_4": (">=", 3.5),
    "sandbox_ratio": ("<=", 2),
}


def parts(at: str, options: argparse.Namespace) -> Mapping[str, Measure]:
    """Name -> what measures it. at: bootstrap servers."""
    from bench import rewards_live, rewards_sandbox, rewards_work

    return {
        "work": lambda: rewards_work.measure(at, options.calls, options.repeats),
        "lag": lambda: rewards_live.lag(at, options.seconds),
        "fleet": lambda: rewards_live.fleet(at, options.fleet_seconds),
        "sandbox": lambda: dict(rewards_sandbox.measured(11, 40)),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """0: measured, whatever the figures say."""
    names = ("work", "lag", "fleet", "sandbox")
    parser = argparse.ArgumentParser(prog="bench.rewards", description=__doc__)
    parser.add_argument("--only", choices=names, action="append", help="measure this part (may be given again)")
    parser.add_argument("--calls", type=int, default=6_000, help="calls that are scored (6000; the issue's: 100000)")
    parser.add_argument("--repeats", type=int, default=3, help="interleaved repeats of ratios (3)")
    parser.add_argument("--seconds", type=float, default=30, help="of 200 calls per second, for the lag (30)")
    parser.add_argument("--fleet-seconds", type=float, default=8, help="of each fleet (8)")
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started here ends with it
    with tempfile.TemporaryDirectory() as folder, broker(Path(folder)) as bootstrap:
        measures = parts(bootstrap, options)
        return run("rewards", {name: measures[name] for name in options.only or names}, TARGETS)


if __name__ == "__main__":
    sys.exit(main())
