"""The plain loop of `make bench-loop`, and the CPU of a tree of processes."""

import time
from collections.abc import Sequence

import psutil  # type: ignore[import-untyped]  # a test helper without stubs
import pytest

from bench.in_process import PlayedCall
from bench.loop.demo import SAMPLE_S, CpuOfTree
from bench.plain_loop import rows_of
from claw_r1.runtime.processes import child


@pytest.mark.parametrize(
    ("calls", "rows"),
    [
        ([([1, 2], [3]), ([1, 2, 3, 4], [5, 6])], [([1, 2, 3, 4, 5, 6], [2, 4, 5])]),
        ([([1, 2], [3]), ([1, 9, 3], [5])], [([1, 2, 3], [2]), ([1, 9, 3, 5], [3])]),
    ],
)
def test_calls_that_extend_each_other_are_one_sequence(
    calls: Sequence[tuple[list[int], list[int]]], rows: object
) -> None:
    """As any library has it; where a template rewrites what was said, each call is its own."""
    played = [PlayedCall(prompt, ids, [-1.0] * len(ids)) for prompt, ids in calls]
    assert [(row.ids.tolist(), row.at.tolist()) for row in rows_of(played, 1.0)] == rows


def test_cpu_of_a_tree_counts_children_that_ended() -> None:
    """What a grandchild spent before it ended stays counted."""
    spend = "import subprocess, sys, time; subprocess.run([sys.executable, '-c', 'import time\\nwhile time.process_time() < 1: pass']); time.sleep(60)"
    process = child.start(["python3", "-c", spend])
    cpu = CpuOfTree(process.pid)
    try:
        while not cpu.cpu_s or cpu.cpu_s[-1]["others"] < 0.7:
            assert process.poll() is None
            time.sleep(SAMPLE_S)
        highest = cpu.cpu_s[-1]["others"]
        while psutil.Process(process.pid).children():
            time.sleep(SAMPLE_S)
        time.sleep(2 * SAMPLE_S)
        assert cpu.cpu_s[-1]["others"] >= highest
        assert cpu.spent_s(cpu.at_s[0], cpu.at_s[-1])["others"] <= cpu.cpu_s[-1]["others"]
    finally:
        cpu.close()
        child.end(process)
