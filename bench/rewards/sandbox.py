"""The costs of the sandbox: `python -m bench.rewards --only sandbox`.

`sandbox_ratio`: CPU of `python -I -S -c pass` in the sandbox ÷ by a bare fork and exec, all processes of either side counted (what
the kernel does later to take a network namespace away is in neither). `sandbox_wall_ratio`: the same by the clock, median of runs.
`sandbox_ms_p50`, `sandbox_ms_p99`: by the clock, from the call to its outcome. Repeats are interleaved; ratios are medians of repeats.
"""

import os
import statistics
import sys
import time
from pathlib import Path

from bench.medians import children_s, percentile, seconds_of
from bench.report import Figures
from claw_r1.consumers.sandbox.sandbox import Sandbox, SandboxProgram

ARGV = (sys.executable, "-I", "-S", "-c", "pass")
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
REPEATS = 11


def measure(runs: int) -> Figures:
    """All figures."""
    cpu_ratios, inside_ms, bare_ms = [], list[float](), list[float]()
    with Sandbox() as sandbox:
        program = SandboxProgram(argv=ARGV)
        assert sandbox._process is not None
        keeper = sandbox._process.pid

        def spent_s() -> float:
            return time.process_time() + children_s() + family_s(keeper)

        def inside() -> None:
            assert sandbox.run(program).exit_code == 0

        for _ in range(REPEATS):
            began_s = spent_s()
            bare_ms += [1000 * seconds_of(bare, time.perf_counter) for _ in range(runs // REPEATS + 1)]
            between_s = spent_s()
            inside_ms += [1000 * seconds_of(inside, time.perf_counter) for _ in range(runs // REPEATS + 1)]
            cpu_ratios.append((spent_s() - between_s) / (between_s - began_s))
    return {
        "sandbox_ratio": statistics.median(cpu_ratios),
        "sandbox_wall_ratio": statistics.median(inside_ms) / statistics.median(bare_ms),
        "sandbox_ms_p50": percentile(inside_ms, 50),
        "sandbox_ms_p99": percentile(inside_ms, 99),
        "bare_ms_p50": percentile(bare_ms, 50),
        "sandbox_runs": len(inside_ms),
    }


def bare() -> None:
    """The same by fork and exec."""
    pid = os.fork()
    if pid == 0:
        os.execv(ARGV[0], ARGV)
    os.waitpid(pid, 0)


def family_s(pid: int) -> float:
    """CPU of a process and of its children that ended, theirs included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) * TICK_S
