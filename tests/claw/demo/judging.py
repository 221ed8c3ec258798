"""The worth of the judge of verbs: its agreement with the rule, and how often an attempt in a wrong call moves it.

`kappa` is Cohen's, over as many right as wrong calls. `moved` gives of wrong calls that the judge takes for wrong the share that it takes
for right when an attempt is appended to them; `noise` is as many random letters, so what is above it is the attempt's.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from claw_r1.claw.demo.verbs.environment import VERBS, right_verb
from claw_r1.claw.demo.verbs.judge import NOISE, SLOT, call_of, is_right, scorers, subject_of
from claw_r1.consumers.rewards.judged import Judged
from claw_r1.consumers.rewards.kinds import kind_of
from claw_r1.consumers.rewards.scorer import RewardScorer
from tests.consumers.rewards.llm_judge.attempts import ATTEMPTS

NOISE_LENGTHS = (10, 40)


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


def agreement(scorer: RewardScorer, subjects: int, rng: random.Random) -> float:
    """Returns kappa with the rule."""
    calls = [call_of(rng, right=number % 2 == 0) for number in range(subjects)]
    return kappa([value >= 0.5 for value in values(scorer, calls)], [is_right(call) for call in calls])


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
