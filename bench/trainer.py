"""The trainer measured: `make bench-trainer` [ARGS="--learn --resume"],
or `python -m bench.trainer [--only PART]…`. A table and bench/out/trainer.json.

Each part is a module `bench/trainer_PART.py` with `measure() -> dict`, and runs in a process of its own, so that no part
pays for another's memory and threads. Figures are CPU seconds and ratios of both sides in one run, repeats interleaved,
medians. The parts that learn (from `verbs` on) run with `--learn`, or when they are named; a part that was not asked for keeps the
figures of its last run, each with its date. With `--resume` the same command goes on where it was stopped.
"""

import argparse
import sys
from collections.abc import Sequence

from bench.report import Targets, in_child, run

MEASURED = ("trees", "step", "publish", "ranks", "history")
LEARNING = ("verbs", "staleness", "long_episodes", "critic", "credit", "environments")
TARGETS: Targets = {
    "tree_ratio": (">=", 2.4),
    "call_rows_ratio": (">=", 12),
    "head_ratio": (">=", 3),
    "head_peak_mb": ("<=", 400),
    "zero_advantage_ratio": ("<=", 0.4),
    "deepspeed_overhead": ("<=", 1.1),
    "lora_ratio": ("<=", 0.8),
    "publish_ratio": ("<=", 2),
    "ranks_speedup": (">=", 1.5),
    "history_ratio": ("<=", 1.5),
    "verbs.share_within_band": (">=", 0.9),
    "staleness.batches_lost.decoupled_2x2": ("<=", 2),
    "long_episodes.tokens": (">=", 0.9),
    "critic.reward_last_min": (">=", 0.85),
    "credit.reward_ahead": (">", 0),
    "environments.behind": ("<=", 0.05),
}


def main(argv: Sequence[str] | None = None) -> int:
    """0: measured, whatever the figures say; 1: a part could not be measured."""
    parser = argparse.ArgumentParser(prog="bench.trainer", description=__doc__)
    parser.add_argument("--only", choices=(*MEASURED, *LEARNING), action="append", help="this part; may be repeated")
    parser.add_argument("--learn", action="store_true", help="the parts that learn, too")
    parser.add_argument(
        "--resume", action="store_true", help="what the run before left, if it was stopped or a part failed"
    )
    parser.add_argument("--json", action="store_true", help="the JSON on stdout instead of the table")
    options = parser.parse_args(argv)
    parts = options.only or [*MEASURED, *(LEARNING if options.learn else ())]
    measures = {part: in_child(part, f"bench.trainer_{part}") for part in parts}
    return run("trainer", measures, TARGETS, as_json=options.json, resume=options.resume)


if __name__ == "__main__":
    sys.exit(main())
