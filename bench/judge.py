"""The worth of a generative judge: `make bench-judge`, or `python -m bench.judge [--subjects N]`. A table and
bench/out/judge.json.

The tiny judge of verbs (`claw/demo/verbs/judge.py`), on a real vLLM without a gateway, asked by the scorer that `claw rewards run` runs.
`kappa`: Cohen's, with the environment's rule, over as many right as wrong calls. `moved`: of wrong calls that it takes for wrong, the
share that it takes for right when the attempt is appended to them (bench/judge_attempts.py); `noise` is as many random letters, so what
is above it is the attempt's. `judge_cpu_ms`: CPU of this process per verdict, the engine's apart.
"""

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.judge_attempts import ATTEMPTS
from bench.report import run
from claw_r1.claw.demo.verbs.environment import VERBS, right_verb
from claw_r1.claw.demo.verbs.judge import MODEL, NOISE, SLOT, call_of, is_right, make_judge, scorers, subject_of
from claw_r1.claw.home import claw_home
from claw_r1.claw.local.ports import free_ports
from claw_r1.claw.local.stack import answers
from claw_r1.consumers.rewards.judged import Judged
from claw_r1.consumers.rewards.kinds import kind_of
from claw_r1.consumers.rewards.opinions import RewardScorer
from claw_r1.rollout.process.command import arguments, environment
from claw_r1.rollout.settings import RolloutSettings
from claw_r1.runtime import child

START_S = 300.0
NOISE_LENGTHS = (10, 40)


@contextmanager
def serving(model: Path) -> Iterator[str]:
    """URL of a vLLM with the model. Raises RuntimeError when it does not start."""
    settings = RolloutSettings(model=model, model_id=MODEL, served_name=MODEL, worker_id="judge", kv_cache_bytes="64M")
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile() as log:
        process = child.start(
            arguments(settings, port), stdout=log, stderr=log, env=environment(settings, "bench", os.environ)
        )
        try:
            ready, deadline = answers(f"{url}/health"), time.monotonic() + START_S
            while not ready():
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise RuntimeError(f"vLLM did not start: {log.read().decode(errors='replace')[-2000:]}")
                time.sleep(0.2)
            yield url
        finally:
            child.end(process, (15, 10.0))


@contextmanager
def judge_at(url: str, **settings: Any) -> Iterator[RewardScorer]:
    """The judge's slot before a server. `settings`: of JudgeSettings, of mixed types, hence Any."""
    kind, (source, _, name) = kind_of("judge"), SLOT.partition("/")
    fields = {"source": source, "name": name, **scorers(url, timeout_s=120.0, **settings)["scorers"][SLOT]}
    scorer = kind.open(kind.settings.model_validate(fields))
    try:
        yield scorer
    finally:
        scorer.close()


def values(scorer: RewardScorer, subjects: Sequence[Judged]) -> list[float]:
    """Returns one value per subject. Raises GaveUp."""
    opinions = [future.result() for future in scorer.judge(subjects)]
    return [opinion.values[0] for opinion in opinions if opinion.values[0] is not None]


def kappa(judged: Sequence[bool], ruled: Sequence[bool]) -> float:
    """Cohen's, of two raters over the same subjects: (agreement - agreement by chance) / (1 - agreement by chance)."""
    n = len(judged)
    agreed = sum(a == b for a, b in zip(judged, ruled, strict=True)) / n
    a, b = sum(judged) / n, sum(ruled) / n
    chance = a * b + (1 - a) * (1 - b)
    return (agreed - chance) / (1 - chance)


def agreement(scorer: RewardScorer, subjects: int, rng: random.Random) -> dict[str, float]:
    """Kappa, and what a verdict costs."""
    calls = [call_of(rng, right=number % 2 == 0) for number in range(subjects)]
    values(scorer, calls[:32])  # the engine's first requests are slow
    wall, cpu = time.monotonic(), time.process_time()
    judged = [value >= 0.5 for value in values(scorer, calls)]
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    return {
        "kappa": kappa(judged, [is_right(call) for call in calls]),
        "judge_cpu_ms": 1000 * cpu / subjects,
        "verdicts_per_s": subjects / wall,
    }


def moved(scorer: RewardScorer, subjects: int, rng: random.Random) -> dict[str, float]:
    """By attempt, and for noise."""
    calls = [wrong_verb(rng) for _ in range(subjects)]
    firm = [call for call, value in zip(calls, values(scorer, calls), strict=True) if value < 0.5]
    noise = {f"noise of {n}": random_text(rng, n) for n in NOISE_LENGTHS}
    appended: dict[str, Callable[[], str]] = {name: lambda text=text: text for name, text in ATTEMPTS.items()}  # type: ignore[misc]  # a lambda with a default
    shares = {}
    for name, text in {**noise, **appended}.items():
        longer = [
            subject_of(list(call.calls[0].messages), f"{(call.calls[0].reply or {})['content']}{text()}")
            for call in firm
        ]
        shares[name] = sum(value >= 0.5 for value in values(scorer, longer)) / len(firm)
    return shares


def random_text(rng: random.Random, length: int) -> Callable[[], str]:
    """Another one at each call."""
    return lambda: "".join(rng.choices(NOISE, k=length))


def wrong_verb(rng: random.Random) -> Judged:
    """A call with the right argument of the wrong tool."""
    call = call_of(rng, right=True).calls[0]
    observation = call.messages[-1]["content"]
    verb = rng.choice([verb for verb in VERBS if verb != right_verb(observation)])
    return subject_of(list(call.messages), f"{verb} {observation[-1]}")


def measure(subjects: int) -> dict[str, Any]:
    """All figures, of mixed types, hence Any."""
    with ExitStack() as resources:
        url = resources.enter_context(serving(make_judge(claw_home() / "cache" / "models")))
        hard, soft = (resources.enter_context(judge_at(url, soft=soft)) for soft in (False, True))
        figures: dict[str, Any] = agreement(hard, subjects, random.Random(7))
        figures["kappa_soft"] = agreement(soft, subjects, random.Random(7))["kappa"]
        shares = moved(hard, subjects // 4, random.Random(8))
    attempts = [share for name, share in shares.items() if name in ATTEMPTS]
    return {
        **figures,
        "moved_mean": sum(attempts) / len(attempts),
        "moved_max": max(attempts),
        "moved": shares,
        "subjects": subjects,
    }


def main() -> int:
    """Prints the figures and writes them."""
    parser = argparse.ArgumentParser(prog="python -m bench.judge", description="What a generative judge is worth.")
    parser.add_argument("--subjects", type=int, default=400, help="calls to judge; a quarter for each attempt (400)")
    subjects = parser.parse_args().subjects
    return run("judge", {"judge": lambda: measure(subjects)}, {})


if __name__ == "__main__":
    raise SystemExit(main())
