"""The costs of scorers: `make bench-rewards`, or `python -m bench.rewards [--only PART]`. A table and
bench/out/rewards.json.

CPU seconds are those of the process that does the work, of all its threads; ratios are within one run, repeats interleaved, figures
medians. The broker is real: `KAFKA_BOOTSTRAP_SERVERS`, else a local node on the same cores. A part that was not measured keeps the
figures of its last run. What each figure means: docs/rewards.md.
"""

import argparse
import importlib
import json
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.gateway_ground import broker

OUT = Path(__file__).parent / "out" / "rewards.json"
Figures = dict[str, Any]  # numbers
TARGETS: Mapping[str, tuple[str, float]] = {
    "call_ratio": ("<=", 2),
    "trajectory_ratio": ("<=", 3),
    "backfill_ratio": ("<=", 3),
    "lag_ms_p99": ("<=", 1000),
    "fleet_ratio_4": (">=", 3.5),
    "sandbox_ratio": ("<=", 2),
    "verdicts_twice": ("<=", 0),
}


def parts(options: argparse.Namespace) -> Mapping[str, Callable[[str], Figures]]:
    """Name -> bootstrap servers to figures."""
    from bench import rewards_live, rewards_work

    return {
        "work": lambda at: rewards_work.measure(at, options.calls, options.repeats),
        "lag": lambda at: rewards_live.lag(at, options.seconds),
        "fleet": lambda at: rewards_live.fleet(at, options.fleet_seconds),
        "kills": lambda at: rewards_live.kills(at, options.kills),
        "sandbox": lambda _: sandbox(),
    }


def sandbox() -> Figures:
    """Returns the figures of `bench.rewards_sandbox`."""
    return dict(importlib.import_module("bench.rewards_sandbox").measured(11, 40))


def table(figures: Figures) -> str:
    """One line per figure, with its target and by how much it is missed."""
    lines = [f"{'figure':36}{'measured':>12}  target"]
    for name, value in figures.items():
        lines.append(f"{name:36}{value:>12,}  {judged(name, value, figures)}".rstrip())
    return "\n".join(lines)


def judged(name: str, value: float, figures: Figures) -> str:
    """Returns the verdict whether the target is met."""
    sign, target = ("<=", figures["in_flight_max"]) if name == "paid_twice" else TARGETS.get(name, ("", 0))
    if not sign:
        return ""
    met = value >= target if sign == ">=" else value <= target
    return f"{sign} {target:,}: " + ("met" if met else f"MISSED by {abs(value - target):.3g}")


def main(argv: Sequence[str] | None = None) -> int:
    """0: measured, whatever the figures say."""
    names = ("work", "lag", "fleet", "kills", "sandbox")
    parser = argparse.ArgumentParser(prog="bench.rewards", description=__doc__)
    parser.add_argument("--only", choices=names, action="append", help="measure this part (may be given again)")
    parser.add_argument("--calls", type=int, default=6_000, help="calls that are scored (6000; the issue's: 100000)")
    parser.add_argument("--repeats", type=int, default=3, help="interleaved repeats of ratios (3)")
    parser.add_argument("--seconds", type=float, default=30, help="of 200 calls per second, for the lag (30)")
    parser.add_argument("--fleet-seconds", type=float, default=8, help="of each fleet (8)")
    parser.add_argument("--kills", type=int, default=10, help="kill -9 under load (10)")
    options = parser.parse_args(argv)
    figures: Figures = {}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started here ends with it
    OUT.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, broker(Path(folder)) as bootstrap:
        for name, measure in parts(options).items():
            if name in (options.only or names):
                print(f"measuring {name} ...", file=sys.stderr, flush=True)
                figures |= measure(bootstrap)
                kept: Figures = json.loads(OUT.read_text()) if OUT.exists() else {}
                OUT.write_text(json.dumps(kept | figures, indent=1) + "\n")
    print(table(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
