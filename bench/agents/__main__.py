"""The costs of agents: CPU of our runner for a model call, by that of OpenAI's SDK in a bare loop.

`runner_cpu_ratio`: CPU per model call of a runner's process (groups, calls, completions) ÷ that of the SDK, both through one
gateway to a scripted engine. Repeats are interleaved, each side a process of its own; medians. The broker is real, acks=all.
"""

from bench.report import Bench

BENCH = Bench(
    name="agents",
    about=__doc__,
    parts={"runner": "bench.agents.load:runner"},
    sizes={"repeats": 7, "episodes": 384},
    targets={"runner_cpu_ratio": ("<=", 0.5)},
)

if __name__ == "__main__":
    BENCH.main()
