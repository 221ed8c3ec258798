"""The waiting of a person at a browser before a pool of many trajectories: Chromium, and the dashboard as a process of its own.

`first_answer_s`: the first page of the list, from the process's first sign of life. `first_rows_ms`, `home_ms`, `batch_ms`: a
fresh profile's first visit to the list, to a run's home, to one of its batches. `three_filters_ms`: from the press of a third
count to its rows. `route_ms`: p95 of `GET /api/v1/rows` over HTTP, by kind, filter and order. `frame_ratio`: p95 of the times
between frames while the list is scrolled, by an empty page's. `heap_mb`, `nodes`: of the page after an hour's updates.
"""

from bench.report import Bench

BENCH = Bench(
    name="dashboard",
    about=__doc__,
    parts={"page": "bench.dashboard.page:measure"},
    sizes={"trajectories": 100_000, "repeats": 3},
    targets={
        "first_answer_s": ("<=", 1),
        "first_rows_ms": ("<=", 500),
        "home_ms": ("<=", 500),
        "batch_ms": ("<=", 400),
        "three_filters_ms": ("<=", 300),
        "route_ms": ("<=", 50),
        "frame_ratio": ("<=", 2),
        "heap_mb": ("<=", 100),
        "nodes": ("<=", 5000),
    },
)

if __name__ == "__main__":
    BENCH.main()
