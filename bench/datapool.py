"""The pool measured: `make bench-datapool`, or `python -m bench.datapool [--only PART]`. A table and bench/out/datapool.json.

CPU seconds are those of the process that does the work, so that a busy machine shows little. Parts: folds, faust,
storage, view, rebuild, reading, flushes; a part that was not asked for keeps the figures of its last run.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence

from bench.report import Targets, in_child, run

TARGETS: Targets = {
    "fold_facts_per_cpu_s": (">=", 6000),
    "faust_facts_per_cpu_s": (">=", 2000),
    "batch_256x1536_ms": ("<=", 20),
    "batch_256x5120_ms": ("<", 60),
    "storage_ratio_to_linear": ("<=", 1.3),
    "stub_bytes": ("<=", 200),
    "rebuild_ratio_to_decode": ("<=", 3.5),
    "view_seconds_100k": ("<=", 18),
    "query_ms_100k": ("<", 100),
    "view_start_s": ("<=", 0.5),
    "view_start_tail_s": ("<=", 1),
    "again_why_cpu_s": ("<=", 1.5),
    "again_stats_cpu_s": ("<=", 2),
    "again_groups_cpu_s": ("<=", 1),
    "other_runs_ratio": ("<=", 1.3),
    "takeover_standby_s": ("<=", 2),
    "takeover_file_s": ("<=", 2),
    "select_idle_cpu_s_100k": ("<=", 0.05),
    "flushes_trajectory.ratio": ("<=", 1.5),
    "flushes_group.ratio": ("<=", 1.5),
}


PARTS: Mapping[str, tuple[str, str]] = {
    "folds": ("bench.datapool_folds", "folds"),
    "storage": ("bench.datapool_storage", "measure"),
    "view": ("bench.datapool_view", "measure"),
    "faust": ("bench.datapool_folds", "faust"),
    "rebuild": ("bench.datapool_rebuild", "measure"),
    "reading": ("bench.datapool_reading", "measure"),
    "flushes": ("bench.datapool_flushes", "measure"),
}
"""Module and function of each, which runs in a process of its own."""


def main(argv: Sequence[str] | None = None) -> int:
    """0: measured, whatever the figures say; 1: a part could not be measured."""
    parser = argparse.ArgumentParser(prog="bench.datapool", description=__doc__)
    parser.add_argument("--only", choices=PARTS, action="append", help="measure this part (may be given again)")
    parts = parser.parse_args(argv).only or PARTS
    return run("datapool", {part: in_child(part, *PARTS[part]) for part in parts}, TARGETS)


if __name__ == "__main__":
    sys.exit(main())
