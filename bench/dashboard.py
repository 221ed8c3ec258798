"""The dashboard at size: `make bench-dashboard`, or `python -m bench.dashboard [--only PART]`. A table and bench/out/dashboard.json.

Parts: pool (its questions, in process), page (Chromium before a pool), detail (one trajectory's answers and its tokens on the
screen), live (gateway, streams and dashboard at 100 calls a second). A part that is measured alone keeps the figures of the others.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.report import Figures, Measure, Targets, run

TARGETS: Targets = {
    "first_answer_s": ("<=", 1),
    "read_ratio": (">=", 0.8),
    "rss_mb": ("<=", 600),
    "list_ms": ("<=", 100),
    "filter_ms": ("<=", 100),
    "sort_ms": ("<=", 100),
    "count_ms": ("<=", 100),
    "text_ms": ("<=", 300),
    "detail_ms": ("<=", 300),
    "detail_10k_ms": ("<=", 1000),
    "first_rows_ms": ("<=", 500),
    "home_ms": ("<=", 500),
    "batch_ms": ("<=", 400),
    "three_filters_ms": ("<=", 300),
    "route_ms": ("<=", 50),
    "frame_ratio": ("<=", 2),
    "tokens_ms": ("<=", 500),
    "heap_mb": ("<=", 100),
    "nodes": ("<=", 5000),
    "live_ms_p50": ("<=", 500),
    "live_ms_p99": ("<=", 1500),
    "fanout_ratio": ("<=", 3),
    "gateway_ratio": ("<=", 1.05),
}


def parts(options: argparse.Namespace) -> Mapping[str, Measure]:
    """Name -> what measures it."""
    from bench import dashboard_detail, dashboard_live, dashboard_page, dashboard_pool
    from bench.gateway_ground import broker

    def live() -> Figures:
        with tempfile.TemporaryDirectory() as folder, broker(Path(folder)) as servers:
            return dict(dashboard_live.measure(servers, Path(folder), options.repeats))

    return {
        "pool": lambda: dict(dashboard_pool.measure(options.trajectories)),
        "page": lambda: dict(dashboard_page.measure(options.trajectories, options.repeats)),
        "detail": lambda: dict(dashboard_detail.measure(options.repeats)),
        "live": live,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """0: measured, whatever the figures say."""
    names = ("pool", "page", "detail", "live")
    parser = argparse.ArgumentParser(prog="bench.dashboard", description=__doc__)
    parser.add_argument("--only", choices=names, action="append", help="measure this part (may be given again)")
    parser.add_argument("--trajectories", type=int, default=100_000, help="in the pool, of 3 steps each (100000)")
    parser.add_argument("--repeats", type=int, default=3, help="medians of so many (3)")
    parser.add_argument("--json", action="store_true", help="the JSON on stdout instead of the table")
    options = parser.parse_args(argv)
    measures = parts(options)
    return run("dashboard", {name: measures[name] for name in options.only or names}, TARGETS, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
