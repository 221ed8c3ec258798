"""Scorers: pure functions of one call, 0 (bad) to 1 (good), None where they have nothing to say.

Invariant: a scorer's answer for a call never changes under one version; who changes a formula raises the version.
"""

import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from claw_r1.consumers.errors import ConsumerError
from claw_r1.consumers.quality.sample import Sample
from claw_r1.runtime.modules import importable

SOFT_SHARE = 0.8
NGRAM = 4


class ScorerUnknown(ConsumerError, ValueError):
    """No scorer of that name, and no `module:name` that is one."""


@dataclass(frozen=True, slots=True)
class Scorer:
    """A function with its name and version."""

    name: str
    version: int
    score: Callable[[Sample], float | None]

    @property
    def label(self) -> str:
        """`name@version`, as events carry it."""
        return f"{self.name}@{self.version}"


def length(sample: Sample) -> float | None:
    """1 up to 80 % of max_tokens, down to 0 at max_tokens; a truncated or empty response is 0.

    A reply of text alone is as long as its usage says; None where that says nothing and there is a max_tokens.
    The shape is DAPO's soft overlong punishment, arXiv 2503.14476.
    """
    usage, limit = sample.call.usage, sample.call.sampling.max_tokens
    tokens = len(sample.ids) or (usage.completion_tokens if usage is not None else 0)
    empty = not sample.ids and not (tokens if sample.message is None else _says(sample.message))
    if sample.call.finish_reason == "length" or empty:
        return 0.0
    if not limit:
        return 1.0
    return _clamped((limit - tokens) / (limit * (1 - SOFT_SHARE))) if tokens else None


def repetition(sample: Sample) -> float | None:
    """Share of distinct ones among the runs of 4 tokens."""
    runs = [tuple(sample.ids[at : at + NGRAM]) for at in range(len(sample.ids) - NGRAM + 1)]
    return len(set(runs)) / len(runs) if runs else None


def entropy(sample: Sample) -> float | None:
    """exp(-H) with H = -mean log-probability of the sampled tokens (nats), an estimate of the policy's entropy.

    1 is certain, 1 / vocabulary is noise: low ones are where the model lost the thread.
    """
    finite = [value for value in sample.logprobs if math.isfinite(value)]
    return _clamped(math.exp(math.fsum(finite) / len(finite))) if finite else None


def text_format(sample: Sample) -> float | None:
    """Share of the marks that hold: something is said, fences and <think> are closed, no broken characters."""
    if sample.message is None:
        return None
    content = sample.message.get("content")
    text = content if isinstance(content, str) else ""
    holds = (
        _says(sample.message),
        text.count("```") % 2 == 0,
        text.count("<think>") <= text.count("</think>"),
        "\ufffd" not in text,
    )
    return sum(holds) / len(holds)


def tool_calls(sample: Sample) -> float | None:
    """Share of the reply's tool calls that name an offered function and give a JSON object with what it requires.

    Nothing to say where the request is lost: what was offered is not known then.
    """
    calls = sample.message.get("tool_calls") if sample.message else None
    if not isinstance(calls, list) or not calls or sample.tools is None:
        return None
    return sum(_valid(call, sample.tools) for call in calls) / len(calls)


def _says(message: Mapping[str, Any]) -> bool:  # JSON of the engine's
    content = message.get("content")
    return bool(message.get("tool_calls")) or (isinstance(content, str) and bool(content.strip()))


def _valid(call: Any, tools: Mapping[str, Mapping[str, Any]]) -> bool:  # JSON of the engine's
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return False
    try:
        arguments = orjson.loads(function.get("arguments") or "{}")
    except (orjson.JSONDecodeError, TypeError):
        return False
    schema = tools.get(str(function.get("name")))
    if schema is None or not isinstance(arguments, dict):
        return False
    required = schema.get("required")
    return not isinstance(required, list) or all(isinstance(name, str) and name in arguments for name in required)


def _clamped(value: float) -> float:
    return min(1.0, max(0.0, value))


SCORERS: Mapping[str, Scorer] = {
    scorer.name: scorer
    for scorer in (
        Scorer("length", 2, length),
        Scorer("repetition", 1, repetition),
        Scorer("entropy", 1, entropy),
        Scorer("format", 1, text_format),
        Scorer("tool_calls", 2, tool_calls),
    )
}


def named(name: str) -> Scorer:
    """A scorer of the table, or `module:name` of one's own, also in the working folder. Raises ScorerUnknown."""
    if name in SCORERS:
        return SCORERS[name]
    module, _, attribute = name.partition(":")
    importable()
    try:
        scorer = getattr(importlib.import_module(module), attribute) if attribute else None
    except (ImportError, AttributeError) as error:
        raise ScorerUnknown(f"scorer {name}: {error}") from error
    if not isinstance(scorer, Scorer):
        raise ScorerUnknown(f"no scorer {name!r}; there are: {', '.join(SCORERS)}, or module:name of a Scorer")
    return scorer
