"""The travel of versions to the engines, measured: `make bench-weights`, or `python -m bench.weights [--part PART]…`.

A table and bench/out/weights.json. Real vLLM on the CPU; 57 M float32 parameters, 228 MB, unless a part says otherwise. Both
sides of a ratio run in one process of their own, take turns, and give medians; under 40 minutes. Lent are two cores: with
less to run on, the figures about throughput say more about the machine.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.trainer import Figures, Targets, measured, table

OUT = Path(__file__).parent / "out" / "weights.json"
PARTS = ("pause", "transfer", "throughput", "flight", "ranks", "feed")
TARGETS: Targets = {
    "pause_ratio": ("<=", 1.2),
    "transfer_ratio": ("<=", 2),
    "throughput_kept_demo": (">=", 0.95),
    "throughput_kept": (">=", 0.75),
    "lost": ("<=", 0),
    "fleet_ratio": ("<=", 2),
    "tp_ratio": ("<=", 1.5),
    "feed_10k_s": ("<=", 1),
}


def main(argv: Sequence[str] | None = None) -> int:
    """0: measured, whatever the figures say; 1: a part could not be measured."""
    parser = argparse.ArgumentParser(prog="bench.weights", description=__doc__)
    parser.add_argument("--part", choices=PARTS, action="append", help="this part; may be repeated. Not given: all")
    parser.add_argument("--repeats", type=int, default=7, help="turns of each side of a ratio")
    parser.add_argument("--json", action="store_true", help="the JSON on stdout instead of the table")
    options = parser.parse_args(argv)
    if options.repeats < 1:
        parser.error("--repeats is below 1")
    kept: Figures = json.loads(OUT.read_text()) if OUT.exists() else {}
    OUT.parent.mkdir(exist_ok=True)
    failed = False
    for part in options.part or PARTS:
        print(f"measuring {part} ...", file=sys.stderr, flush=True)
        figures = measured(part, "bench.weights_parts", part, options.repeats)
        failed = failed or part in figures
        kept.pop(part, None)
        kept |= {**figures, "_dates": {**kept.get("_dates", {}), part: time.strftime("%Y-%m-%d")}}
        OUT.write_text(json.dumps(kept, indent=1) + "\n")
    print(json.dumps(kept) if options.json else table(kept, TARGETS))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
