"""The costs of the loop itself: `make bench-loop`, or `python -m bench.loop [--json]`. A table and bench/out/loop.json,
in ten minutes.

`loop_cpu_ratio`, `loop_wall_ratio`: CPU seconds and seconds per batch of `claw demo` (every process below it, broker included,
between its second batch and its last) ÷ those of a loop in one process: same model, tasks, sampling and optimizer,
transformers' `generate` and a plain step, one thread, no log, no HTTP. The plain loop runs before and after the demo.
`cpu_s_of` are the demo's CPU seconds per batch by process, `batches_to_90` the first of its batches whose mean reward is .90.
"""

import argparse
import bisect
import json
import random
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]  # a bench without its stubs
import torch
from transformers import AutoTokenizer

from bench.in_process import NEW_TOKENS_MAX, PlayedCall, PlayedEpisode, Player
from bench.plain_loop import PlainLearner
from bench.report import Figures, Targets, run
from bench.verbs import GROUPS, MEMBERS, settings, verbs
from claw_r1.claw.home import claw_home
from claw_r1.trainer.learn.examples import Example, LearnerBatch

TARGETS: Targets = {"loop_cpu_ratio": ("<=", 3.8), "loop_wall_ratio": ("<=", 4)}
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


class Generating(Player):
    """Samples by transformers' `generate`, with the weights that the learner trains."""

    def __init__(self, model: Any, model_dir: Path) -> None:  # Any: a transformers model of any kind
        self._model, self._tokenizer = model, AutoTokenizer.from_pretrained(model_dir)

    @torch.inference_mode()
    def _sample(self, prompts: Sequence[list[int]]) -> list[tuple[list[int], list[float]]]:
        longest, end = max(map(len, prompts)), self._tokenizer.eos_token_id
        output = self._model.generate(
            torch.tensor([[end] * (longest - len(prompt)) + prompt for prompt in prompts]),
            attention_mask=torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            max_new_tokens=NEW_TOKENS_MAX,
            pad_token_id=end,
            eos_token_id=end,
            return_dict_in_generate=True,
            output_logits=True,
        )
        ids = output.sequences[:, longest:]
        logprobs = torch.stack(output.logits, 1).float().log_softmax(-1).gather(-1, ids[..., None])[..., 0]
        lengths = [row.index(end) + 1 if end in row else len(row) for row in ids.tolist()]
        return [(ids[row, :n].tolist(), logprobs[row, :n].tolist()) for row, n in enumerate(lengths)]


class PlainGrpo(PlainLearner):
    """A batch after another in this process."""

    def play_and_train(self, player: Player, dice: random.Random) -> float:
        """One batch; its mean return."""
        examples: list[Example] = []
        earned: list[float] = []
        starts = [verbs(dice) for _ in range(GROUPS)]
        episodes = [PlayedEpisode(start()) for start in starts for _ in range(MEMBERS)]
        player.play(episodes)
        for first in range(0, len(episodes), MEMBERS):
            members = episodes[first : first + MEMBERS]
            returns = [episode.earned for episode in members]
            mean, deviation = fmean(returns), pstdev(returns)
            for episode, value in zip(members, returns, strict=True):
                examples += rows_of(episode.calls, (value - mean) / (deviation + 1e-6))
            earned += returns
        self.train(LearnerBatch(examples, version=0, seed=0, group_sizes=(MEMBERS,) * GROUPS))
        return fmean(earned)


def rows_of(calls: Sequence[PlayedCall], advantage: float) -> list[Example]:
    """A sequence for each chain of calls that extend each other."""
    rows: list[tuple[list[int], list[int], list[float]]] = []
    for call in calls:
        extends = bool(rows) and call.prompt[: len(rows[-1][0])] == rows[-1][0]
        _, at, behaviour = rows.pop() if extends else ([], [], [])
        at = [*at, *range(len(call.prompt), len(call.prompt) + len(call.ids))]
        rows.append(([*call.prompt, *call.ids], at, [*behaviour, *call.logprobs]))
    return [_example(ids, at, behaviour, advantage) for ids, at, behaviour in rows]


def _example(ids: list[int], at: list[int], behaviour: list[float], advantage: float) -> Example:
    n = len(at)
    none, ones = np.zeros(n, np.int64), np.ones(n, np.float32)
    return Example(
        ids=np.array(ids, np.int32),
        at=np.array(at, np.int64),
        behaviour=np.array(behaviour, np.float32),
        advantages=ones * np.float32(advantage),
        versions=none,
        responses=none,
        trajectories=none,
        temperatures=ones,
        rewards=ones * 0,
        scale=ones,
        weights=np.ones((n, 3), np.float32),
    )


def in_process(batches: int, seed: int) -> tuple[float, float, float]:
    """CPU seconds and seconds per batch, and the mean return of the last five."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    with settings(seed) as chosen:
        learner, dice = PlainGrpo(chosen), random.Random(seed)
        player = Generating(learner.model, chosen.model_dir)
        rewards = [learner.play_and_train(player, dice) for _ in range(UNCOUNTED)]
        began, cpu = time.monotonic(), time.process_time()
        rewards += [learner.play_and_train(player, dice) for _ in range(batches)]
    return (time.process_time() - cpu) / batches, (time.monotonic() - began) / batches, fmean(rewards[-5:])


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
        "cpu_s_of": {name: round(seconds, 3) for name, seconds in sorted(spent_s.items(), key=lambda one: -one[1])},
    }


def measure(batches: int, seed: int) -> Figures:
    """Both sides, and the ratios."""
    first = in_process(batches, seed)
    whole = demo(seed)
    plain = [fmean(pair) for pair in zip(first, in_process(batches, seed + 1), strict=True)]
    return {
        "loop_cpu_ratio": round(whole["cpu_s"] / plain[0], 2),
        "loop_wall_ratio": round(whole["seconds"] / plain[1], 2),
        "demo": {name: round(value, 3) if isinstance(value, float) else value for name, value in whole.items()},
        "plain": dict(zip(("cpu_s", "seconds", "reward_last"), (round(value, 3) for value in plain), strict=True)),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """0: measured, whatever the figures say."""
    parser = argparse.ArgumentParser(prog="bench.loop", description=__doc__)
    parser.add_argument("--batches", type=int, default=25, help="of the plain loop, before and after the demo")
    parser.add_argument("--seed", type=int, default=0, help="of the demo and of the plain loop")
    parser.add_argument("--json", action="store_true", help="the JSON on stdout instead of the table")
    options = parser.parse_args(argv)
    if options.batches < 1:
        parser.error("--batches is below 1")
    return run("loop", {"loop": lambda: measure(options.batches, options.seed)}, TARGETS, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
