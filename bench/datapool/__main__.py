"""The costs of the pool: folds, rows on disk, the view, a worker under Faust, a rebuild and a takeover.

CPU seconds are those of the process that does the work, so that a busy machine shows little; records of 512 + 128 tokens.

`folds`: facts per CPU-second; `decode` from wire bytes to events, `state` decoded and folded, `fold` all that a worker does but
Kafka, with a flush every 500 facts. `faust`: of `python -m claw_r1.streams` on a real broker, fenced, its rows in files.
`storage`: bytes on the broker's disk of one conversation of 40 turns, its facts and its rows after compaction, by ids, body,
log-probabilities and replies each once and unpacked; `stub_bytes` are left of an evicted group.
`view`: CPU seconds, memory and start-up of views of so many steps (docs/pool.md). `rebuild`: CPU of `claw_r1.streams.rebuild`
over so many calls, by that of a loop that reads and decodes them. `takeover`: seconds in which a worker's state is read back
for all partitions, from the broker, from copies that it held (`standby`), from files of a worker that was killed (`file`).
"""

from bench.report import Bench

BENCH = Bench(
    name="datapool",
    about=__doc__,
    parts={
        "folds": "bench.datapool.folds:folds",
        "storage": "bench.datapool.storage:measure",
        "view": "bench.datapool.view:measure",
        "faust": "bench.datapool.folds:faust",
        "rebuild": "bench.datapool.rebuild:rebuilt",
        "takeover": "bench.datapool.rebuild:takeover",
    },
    sizes={"groups": 160, "turns": 40, "tokens": 30_000, "steps": 100_000, "calls": 100_000, "takeover_steps": 20_000},
    targets={
        "fold_facts_per_cpu_s": (">=", 6000),
        "faust_facts_per_cpu_s": (">=", 2000),
        "batch_256x1536_ms": ("<=", 20),
        "batch_256x5120_ms": ("<", 60),
        "storage_ratio_to_linear": ("<=", 1.3),
        "stub_bytes": ("<=", 200),
        "rebuild_ratio_to_decode": ("<=", 3.5),
        "view_seconds_100k": ("<=", 18),
        "view_start_s": ("<=", 0.5),
        "view_start_tail_s": ("<=", 1),
        "takeover_standby_s": ("<=", 2),
        "takeover_file_s": ("<=", 2),
        "select_idle_cpu_s_100k": ("<=", 0.05),
    },
)

if __name__ == "__main__":
    BENCH.main()
