"""The two sides of `bench.loop`: the CPU of `claw demo` by process, and a plain loop before and after it."""

import bisect
import json
import subprocess
import sys
import threading
import time
from collections import defaultdict
from statistics import fmean

import psutil  # type: ignore[import-untyped]  # a bench without its stubs

from bench.report import Figures
from claw_r1.claw.home import claw_home

SAMPLE_S = 0.25
DEMO_S = 1500.0
UNCOUNTED = 2
LEARNT = 0.9
PROCESSES = {
    "broker": "kafka.Kafka",
    "engine": "VLLM::EngineCore",
    "vllm_http": "rollout.process.vllm_server",
    "gateway": "claw_r1.gateway",
    "streams": "claw_r1.streams",
    "trainer": "claw_r1.trainer",
    "agents": "claw_r1.agentflow",
    "supervisor": "claw_r1.rollout",
    "demo": "claw_r1.claw",
}
"""Name -> the part of its command line that tells it from all before it."""


class CpuOfTree:
    """CPU seconds of a process and all below it over time; those that ended keep what they had when last seen."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._seen: dict[tuple[int, float], tuple[str, float]] = {}
        self.at_s: list[float] = []
        self.cpu_s: list[dict[str, float]] = []
        """At each of these times, by process."""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._end.wait(SAMPLE_S):
            try:
                tree = [self._root, *self._root.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
            for process in tree:
                try:
                    times, name = process.cpu_times(), name_of(" ".join(process.cmdline()))
                except psutil.Error:  # it ended meanwhile
                    continue
                self._seen[process.pid, process.create_time()] = name, times.user + times.system
            self.at_s.append(time.time())
            cpu_s: dict[str, float] = defaultdict(float)
            for name, seconds in self._seen.values():
                cpu_s[name] += seconds
            self.cpu_s.append(cpu_s)

    def spent_s(self, begin: float, end: float) -> dict[str, float]:
        """Between two times since the epoch, by process; to the next sample."""
        first, last = (min(bisect.bisect_left(self.at_s, at), len(self.at_s) - 1) for at in (begin, end))
        return {name: seconds - self.cpu_s[first].get(name, 0.0) for name, seconds in self.cpu_s[last].items()}

    def close(self) -> None:
        self._end.set()
        self._thread.join()


def name_of(command: str) -> str:
    """The name of a process of the demo by its command line."""
    return next((name for name, part in PROCESSES.items() if part in command), "others")


def demo(seed: int) -> Figures:
    """The figures of `claw demo`, `cpu_s` and `seconds` per batch. Raises RuntimeError when it does not end."""
    command = [sys.executable, "-m", "claw_r1.claw", "demo", "--json", "--seed", str(seed)]
    runs = claw_home() / "runs"
    before = set(runs.glob("demo-*"))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        cpu = CpuOfTree(process.pid)
        try:
            said, _ = process.communicate(timeout=DEMO_S)
        finally:
            cpu.close()
            process.terminate()
    added = set(runs.glob("demo-*")) - before
    if not said.strip() or len(added) != 1:
        raise RuntimeError(f"claw demo ended with {process.returncode} and no result")
    lines = [json.loads(line) for line in (added.pop() / "trainer" / "metrics.jsonl").read_text().splitlines()]
    begin, end = (lines[index]["occurred_at_us"] / 1e6 for index in (UNCOUNTED - 1, -1))
    batches = len(lines) - UNCOUNTED
    spent_s = {name: seconds / batches for name, seconds in cpu.spent_s(begin, end).items()}
    return {
        "cpu_s": sum(spent_s.values()),
        "seconds": (end - begin) / batches,
        "reward_last": json.loads(said)["reward_last"],
        "batches_to_90": next((n for n, line in enumerate(lines, 1) if line["reward"] >= LEARNT), None),
        "cpu_s_of": dict(sorted(spent_s.items(), key=lambda one: -one[1])),
    }


def measure(batches: int, seed: int) -> Figures:
    """Both sides, and the ratios."""
    from bench.plain_loop import in_process  # torch, of which a test of CPU times knows nothing

    first = in_process(batches, seed)
    whole = demo(seed)
    plain = [fmean(pair) for pair in zip(first, in_process(batches, seed + 1), strict=True)]
    return {
        "loop_cpu_ratio": whole["cpu_s"] / plain[0],
        "loop_wall_ratio": whole["seconds"] / plain[1],
        "demo": whole,
        "plain": dict(zip(("cpu_s", "seconds", "reward_last"), plain, strict=True)),
    }
