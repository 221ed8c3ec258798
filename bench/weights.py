"""The travel of versions to the engines, measured: `make bench-weights`, or `python -m bench.weights [--part PART]…`.

A table and bench/out/weights.json. Real vLLM on the CPU; 57 M float32 parameters, 228 MB, unless a part says otherwise. Both
sides of a ratio run in one process of their own, take turns, and give medians; under 40 minutes. Lent are two cores: with
less to run on, the figures about throughput say more about the machine.
"""

import argparse
import sys
from collections.abc import Sequence

from bench.report import Targets, in_child, run

PARTS = ("pause", "adapter", "transfer", "carrier", "halt", "patch", "throughput", "ranks", "feed")
TARGETS: Targets = {
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
    parts = options.part or PARTS
    measures = {part: in_child(part, "bench.weights_parts", part, options.repeats) for part in parts}
    return run("weights", measures, TARGETS, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
