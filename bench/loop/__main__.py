"""The costs of the loop itself, by those of a loop in one process; ten minutes.

`loop_cpu_ratio`, `loop_wall_ratio`: CPU seconds and seconds per batch of `claw demo` (every process below it, broker included,
between its second batch and its last) ÷ those of a loop in one process: same model, tasks, sampling and optimizer,
transformers' `generate` and a plain step, one thread, no log, no HTTP. The plain loop runs before and after the demo.
`cpu_s_of` are the demo's CPU seconds per batch by process, `batches_to_90` the first of its batches whose mean reward is .90.
"""

from bench.report import Bench

BENCH = Bench(
    name="loop",
    about=__doc__,
    parts={"loop": "bench.loop.demo:measure"},
    sizes={"batches": 25, "seed": 0},
    one_thread=False,
    targets={"loop_cpu_ratio": ("<=", 3.8), "loop_wall_ratio": ("<=", 4)},
)

if __name__ == "__main__":
    BENCH.main()
