"""The dashboard at size: `make bench-dashboard`, or `python -m bench.dashboard [--only PART]`. A table and bench/out/dashboard.json.

Parts: pool (its questions, in process), page (Chromium before a pool), detail (one trajectory's answers and its tokens on the
screen), live (gateway, streams and dashboard at 100 calls a second). A part that is measured alone keeps the figures of the others.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

OUT = Path(__file__).parent / "out" / "dashboard.json"
Figures = Mapping[str, float]
TARGETS: Mapping[str, tuple[str, float]] = {
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
    "frame_ratio": ("<=", 2),
    "tokens_ms": ("<=", 500),
    "heap_mb": ("<=", 100),
    "nodes": ("<=", 5000),
    "live_ms_p50": ("<=", 500),
    "live_ms_p99": ("<=", 1500),
    "fanout_ratio": ("<=", 3),
    "gateway_ratio": ("<=", 1.05),
}


def parts(options: argparse.Namespace) -> Mapping[str, Callable[[], Figures]]:
    """Name -> what measures it."""
    from bench import dashboard_detail, dashboard_live, dashboard_page, dashboard_pool
    from bench.gateway_ground import broker

    def live() -> Figures:
        with tempfile.TemporaryDirectory() as folder, broker(Path(folder)) as servers:
            return dashboard_live.measure(servers, Path(folder), options.repeats)

    return {
        "pool": lambda: dashboard_pool.measure(options.trajectories),
        "page": lambda: dashboard_page.measure(options.trajectories, options.repeats),
        "detail": lambda: dashboard_detail.measure(options.repeats),
        "live": live,
    }


def table(figures: Figures) -> str:
    """One line per figure, with its target and by how much it is missed."""
    lines = [f"{'figure':24}{'measured':>12}  target"]
    for name, value in figures.items():
        sign, target = TARGETS.get(name, ("", 0))
        met = value <= target if sign == "<=" else value >= target
        verdict = f"{sign} {target:g}: " + ("met" if met else f"MISSED by {abs(value - target):.3g}") if sign else ""
        lines.append(f"{name:24}{value:>12,.3f}  {verdict}".rstrip())
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """0: measured, whatever the figures say."""
    names = ("pool", "page", "detail", "live")
    parser = argparse.ArgumentParser(prog="bench.dashboard", description=__doc__)
    parser.add_argument("--only", choices=names, action="append", help="measure this part (may be given again)")
    parser.add_argument("--trajectories", type=int, default=100_000, help="in the pool, of 3 steps each (100000)")
    parser.add_argument("--repeats", type=int, default=3, help="medians of so many (3)")
    parser.add_argument("--json", action="store_true", help="the JSON on stdout, too")
    options = parser.parse_args(argv)
    figures = json.loads(OUT.read_text()) if options.only and OUT.exists() else {}
    measuring = parts(options)
    for name in options.only or names:
        print(f"measuring: {name}", file=sys.stderr, flush=True)
        figures |= measuring[name]()
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(figures, indent=2) + "\n")
    print(table(figures), file=sys.stderr)
    if options.json:
        print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
