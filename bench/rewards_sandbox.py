"""The costs of the sandbox: `python -m bench.rewards_sandbox`. JSON on stdout and in `bench/out/rewards_sandbox.json`.

`sandbox_ratio`: CPU of `python -I -S -c pass` in the sandbox ÷ by a bare fork and exec, all processes of either side counted (what
the kernel does later to take a network namespace away is in neither). `sandbox_wall_ratio`: the same by the clock, median of runs.
`sandbox_ms_p50`, `sandbox_ms_p99`: by the clock, from the call to its outcome. Repeats are interleaved; ratios are medians of repeats.

`--tasks FILE…` says instead which share of reference solutions keeps its point (`bench/rewards_tasks.py` has the files' shapes).
"""

import argparse
import json
import os
import resource
import statistics
import sys
import time
from pathlib import Path

from bench.rewards_tasks import shared
from claw_r1.consumers.sandbox.sandbox import Sandbox, SandboxProgram

OUT = Path(__file__).parent / "out" / "rewards_sandbox.json"
TARGETS = {"sandbox_ratio": ("<=", 2.0), "right_code_share": (">=", 0.995)}
ARGV = (sys.executable, "-I", "-S", "-c", "pass")
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Measures and reports; 0 when the target is met, else 1."""
    parser = argparse.ArgumentParser(prog="bench.rewards_sandbox", description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=11, help="interleaved repeats of each side (11)")
    parser.add_argument("--runs", type=int, default=40, help="runs per repeat (40)")
    parser.add_argument("--tasks", type=Path, nargs="+", metavar="FILE", help="reference solutions: how many pass")
    options = parser.parse_args()
    if options.tasks:
        figures_of_tasks = shared(options.tasks)
        print(json.dumps(figures_of_tasks, indent=2))
        return 0 if figures_of_tasks["right_code_share"] >= TARGETS["right_code_share"][1] else 1
    figures = measured(options.repeats, options.runs)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2))
    return 0 if figures["sandbox_ratio"] <= TARGETS["sandbox_ratio"][1] else 1


def measured(repeats: int, runs: int) -> dict[str, float]:
    """All figures."""
    cpu_ratios, inside_ms, bare_ms = [], [], []
    with Sandbox() as sandbox:
        program = SandboxProgram(argv=ARGV)
        assert sandbox._process is not None
        keeper = sandbox._process.pid
        for _ in range(repeats):
            bare_s, times_ms = bare(runs)
            bare_ms += times_ms
            before_s = own_s() + family_s(keeper)
            for _ in range(runs):
                begun_s = time.perf_counter()
                outcome = sandbox.run(program)
                inside_ms.append(1e3 * (time.perf_counter() - begun_s))
                assert outcome.exit_code == 0
            cpu_ratios.append((own_s() + family_s(keeper) - before_s) / bare_s)
    hundredths = statistics.quantiles(inside_ms, n=100)
    return {
        "sandbox_ratio": round(statistics.median(cpu_ratios), 3),
        "sandbox_wall_ratio": round(statistics.median(inside_ms) / statistics.median(bare_ms), 3),
        "sandbox_ms_p50": round(hundredths[49], 2),
        "sandbox_ms_p99": round(hundredths[98], 2),
        "bare_ms_p50": round(statistics.median(bare_ms), 2),
        "runs": float(repeats * runs),
    }


def bare(runs: int) -> tuple[float, list[float]]:
    """CPU seconds of all runs together, and milliseconds by the clock of each."""
    before_s, times_ms = own_s() + children_s(), []
    for _ in range(runs):
        begun_s = time.perf_counter()
        pid = os.fork()
        if pid == 0:
            os.execv(ARGV[0], ARGV)
        os.waitpid(pid, 0)
        times_ms.append(1e3 * (time.perf_counter() - begun_s))
    return own_s() + children_s() - before_s, times_ms


def own_s() -> float:
    """CPU of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def children_s() -> float:
    """CPU of its children that ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def family_s(pid: int) -> float:
    """CPU of a process and of its children that ended, theirs included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) * TICK_S


if __name__ == "__main__":
    sys.exit(main())
