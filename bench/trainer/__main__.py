"""The costs of the trainer, and what it learns: beside plain ways of doing the same, and beside itself at other settings.

Figures are CPU seconds (`ranks`: seconds of the clock) and ratios of both sides in one run, repeats interleaved, medians. Each
part is a module `bench/trainer/PART.py` (`staleness`: `bench/trainer_staleness.py`) that says what it measures. The parts that learn, from `verbs` on, run with `--learn`,
or when they are named.
"""

from bench.report import Bench

LEARNING = ("verbs", "staleness", "critic", "environments")
BENCH = Bench(
    name="trainer",
    about=__doc__,
    parts={part: f"bench.trainer.{part}:measure" for part in ("trees", "step", "ranks", *LEARNING)}
    | {"staleness": "bench.trainer_staleness:measure"},  # a program, too
    sizes={"repeats": 5, "seeds": 3, "batches": 30, "demos": 5},
    targets={
        "tree_ratio": (">=", 2.4),
        "head_peak_mb": ("<=", 400),
        "deepspeed_overhead": ("<=", 1.1),
        "lora_ratio": ("<=", 0.8),
        "ranks_speedup": (">=", 1.5),
        "verbs.share_within_band": (">=", 0.9),
        "staleness.batches_lost.decoupled_2x2": ("<=", 2),
        "critic.reward_last_min": (">=", 0.85),
        "environments.behind": ("<=", 0.05),
    },
    learning=LEARNING,
)

if __name__ == "__main__":
    BENCH.main()
