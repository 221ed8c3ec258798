"""The response times of `claw`: `make bench-commands`, or `python -m bench.commands [--repeats N]`. A table and
bench/out/commands.json.

Input: the pool that `make demo` left in the kept log (of `CLAW_HOME`). A broker runs all the while, as `claw broker` keeps
one; each command is a process of its own. `wall_s`, `cpu_s`: medians over the repeats, of wall time and of CPU time of the
whole process. Targets: 3 s of wall time for a command that reads the log, 0.5 s of CPU time for `claw --help`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from bench.report import Targets, run
from claw_r1.claw.local.broker import resolve_broker

HELP = "--help"
HELP_CPU_S_MAX = 0.5
ANSWER_WALL_S_MAX = 3.0
Timing = dict[str, float]


def measure(repeats: int) -> dict[str, Timing]:
    """Timings by command line. Raises RuntimeError when the kept log has no pool."""
    with resolve_broker() as broker:
        environment = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap}
        lines = command_lines(*sample(environment))
        return {name: _median(words, environment, repeats) for name, words in lines.items()}


def sample(environment: Mapping[str, str]) -> tuple[str, str, str]:
    """Group, trajectory and run of the pool's first trajectory. Raises RuntimeError when there is none."""
    words = ["pool", "trajectories", "--limit", "1", "--channel", "train", "--json"]
    command = [sys.executable, "-m", "claw_r1.claw", *words]
    output = subprocess.run(command, env=environment, capture_output=True, check=False)
    if output.returncode or not output.stdout:
        raise RuntimeError("the kept log has no pool to measure with: run `make demo` first")
    row = json.loads(output.stdout.splitlines()[0])
    return row["group_id"], row["trajectory_id"], row["policy_run_id"]


def command_lines(group: str, trajectory: str, run: str) -> dict[str, list[str]]:
    """Returns the measured command lines, by the name under which each is reported."""
    return {
        HELP: [HELP],
        "pool stats": ["pool", "stats"],
        "pool stats --group": ["pool", "stats", "--group", group],
        "pool steps": ["pool", "steps"],
        "pool steps --text": ["pool", "steps", "--text", "gate", "--group", group],
        "pool trajectories": ["pool", "trajectories"],
        "pool groups": ["pool", "groups"],
        "pool why": ["pool", "why", trajectory],
        "pool batch": ["pool", "batch", "--preset", "grpo"],
        "inspect": ["inspect", trajectory, "--group", group],
        "lineage of a version": ["lineage", f"{run}/1"],
        "lineage of a trajectory": ["lineage", trajectory],
        "replay --limit": ["replay", "--limit", "3"],
        "topics describe": ["topics", "describe"],
        "topics diff": ["topics", "diff"],
        "dlq list": ["dlq", "list"],
        "dlq list --pending": ["dlq", "list", "--pending"],
        "status": ["status"],
        "doctor": ["doctor"],
    }


def _median(words: Sequence[str], environment: Mapping[str, str], repeats: int) -> Timing:
    timings = [timing(words, environment) for _ in range(repeats)]
    return {name: round(statistics.median(each[name] for each in timings), 2) for name in ("wall_s", "cpu_s")}


def timing(words: Sequence[str], environment: Mapping[str, str]) -> Timing:
    """Wall and CPU seconds of one command, from its start to its end. Raises RuntimeError when it could not run."""
    began = time.monotonic()
    command = [sys.executable, "-m", "claw_r1.claw", *words]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):  # 1: the answer is no
        raise RuntimeError(f"claw {' '.join(words)} ended with {process.returncode}")
    return {"wall_s": wall_s, "cpu_s": usage.ru_utime + usage.ru_stime}


TARGETS: Targets = {
    **{f"{name}.wall_s": ("<=", ANSWER_WALL_S_MAX) for name in command_lines("", "", "") if name != HELP},
    f"{HELP}.cpu_s": ("<=", HELP_CPU_S_MAX),
}


def main(argv: Sequence[str] | None = None) -> int:
    """0: measured, whatever the figures say; 2: there is no pool to measure with."""
    parser = argparse.ArgumentParser(prog="bench.commands", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="runs of each command, of which the median counts")
    repeats = parser.parse_args(argv).repeats
    try:
        return run("commands", {"commands": lambda: dict(measure(repeats))}, TARGETS)
    except RuntimeError as error:
        print(f"bench.commands: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
