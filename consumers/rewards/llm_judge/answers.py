"""The reply of a judge as a number of the rubric's scale. Pure.

Invariant: there is no default. Any reply but exactly one answer in the form is `Unparsable`, with text for the retry.
"""

import math
import re
from collections.abc import Callable, Sequence
from statistics import fmean, median, multimode, stdev
from typing import Any, Literal, NamedTuple

import orjson

from claw_r1.consumers.rewards.llm_judge.rubrics import REASONS, SCORE, Rubric

Merge = Literal["mean", "median", "majority"]
THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
THOUGHT_END = "</think>"
NUMBER = re.compile(r"(?:[A-Za-z][A-Za-z ]{0,30}[:=])?\s*([-+]?\d{1,12}(?:\.\d{1,12})?)(?:\s*/\s*(\d{1,12}))?\.?")
MARKS = " \t\r\n\"'`*."
"""The characters that may stand around an option in a reply."""
SOFT_MASS_MIN = 0.5
"""Below it the engine's first token is no answer, whatever the share of the allowed ones among themselves."""


class Unparsable(Exception):
    """The reply is not in the form of an answer; the message explains the error to the judge and to people."""


class ParsedAnswer(NamedTuple):
    """A value on the rubric's scale."""

    value: float
    reasons: str = ""
    missing: float = 0.0
    """The part missing from a soft score: the probability of all that is no allowed answer."""


class MergedAnswer(NamedTuple):
    """The result of all votes on one question."""

    value: float
    spread: float | None
    """Sample standard deviation; None of one vote."""
    reasons: str
    votes: int
    missing: float
    """The highest of theirs."""


def without_thought(text: str) -> str:
    """The reply without its thoughts; empty where these never end.

    >>> without_thought("<think>7?</think> 8"), without_thought("7?</think>8"), without_thought("<think>7")
    ('8', '8', '')
    """
    return THOUGHT.sub("", text).rpartition(THOUGHT_END)[2].strip()


def parsed(rubric: Rubric, text: str) -> ParsedAnswer:
    """The answer in a reply. Raises Unparsable."""
    answer = without_thought(text)
    if not answer:
        raise Unparsable("there was no answer, or it was cut off before it began.")
    return FORMS[rubric.answer](rubric, answer)


def soft(rubric: Rubric, tokens: Sequence[dict[str, Any]]) -> ParsedAnswer:
    """The expectation over the allowed answers: sum of value(a) * P(a) over sum of P(a), at the answer's first token.

    `tokens`: OpenAI's `logprobs.content`, hence Any. P(a): of the listed tokens that begin `a` and no other answer, or are `a` with
    marks behind it. What the list leaves out, and what begins no answer or several, is `missing`. Raises Unparsable where that is more than half.
    """
    options = {word.casefold(): value for word, value in rubric.options.items()}
    mass = dict.fromkeys(options, 0.0)
    for candidate in _first_of_answer(tokens).get("top_logprobs") or ():
        token = str(candidate.get("token", "")).strip().casefold()
        fitting = [word for word in options if token and (word.startswith(token) or _is_marked(token, word))]
        if len(fitting) == 1:
            mass[fitting[0]] += _probability(candidate.get("logprob"))
    total = sum(mass.values())
    if not total >= SOFT_MASS_MIN:
        raise Unparsable(f"it must begin with one of {', '.join(rubric.options)}.")
    return ParsedAnswer(sum(options[word] * share for word, share in mass.items()) / total, "", max(0.0, 1.0 - total))


def merged(answers: Sequence[ParsedAnswer], merge: Merge) -> MergedAnswer:
    """One value of several votes (at least one), with their spread and the reasons of the vote that is nearest to it."""
    values = [answer.value for answer in answers]
    value = MERGES[merge](values)
    nearest = min(answers, key=lambda answer: abs(answer.value - value))
    spread, missing = stdev(values) if len(values) > 1 else None, max(answer.missing for answer in answers)
    return MergedAnswer(value, spread, nearest.reasons, len(values), missing)


def _majority(values: Sequence[float]) -> float:
    """The most frequent value; of several such, their mean."""
    return fmean(multimode(values))


MERGES: dict[Merge, Callable[[Sequence[float]], float]] = {"mean": fmean, "median": median, "majority": _majority}


def structure(rubric: Rubric) -> dict[str, Any]:
    """Fields of the request that hold the engine to the form: vLLM's `structured_outputs`, or OpenAI's schema for JSON."""
    if rubric.options:
        return {"structured_outputs": {"choice": list(rubric.options)}}
    if rubric.answer == "number":
        return {"structured_outputs": {"regex": r"-?[0-9]{1,9}(\.[0-9]{1,6})?"}}
    low, high = rubric.scale
    scores = {name: {"type": "number", "minimum": low, "maximum": high} for name in rubric.criteria or (SCORE,)}
    properties = {REASONS: {"type": "string"}, **scores}
    schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    named = {"name": "verdict", "strict": True, "schema": schema}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


def _first_of_answer(tokens: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The first token behind all thoughts that is more than space. Raises Unparsable where there is none."""
    texts = [str(token.get("token", "")) for token in tokens]
    answer_at = "".join(texts).rfind(THOUGHT_END)
    answer_at = 0 if answer_at < 0 else answer_at + len(THOUGHT_END)
    length = 0
    for token, text in zip(tokens, texts, strict=True):
        if length >= answer_at and text.strip():
            return token
        length += len(text)
    raise Unparsable("there was no answer, or it was cut off before it began.")


def _is_marked(token: str, word: str) -> bool:
    """Returns whether the token is the word and marks, as `a.` is; `based` is another word that begins like b."""
    return token.startswith(word) and not any(map(str.isalnum, token.removeprefix(word)))


def _probability(logprob: object) -> float:
    return math.exp(min(logprob, 0.0)) if isinstance(logprob, float | int) else 0.0


def _option(rubric: Rubric, text: str) -> ParsedAnswer:
    word = text.strip(MARKS).casefold()
    for option, value in rubric.options.items():
        if word == option.casefold():
            return ParsedAnswer(value)
    raise Unparsable(f"it must be one of {', '.join(rubric.options)}, and nothing else.")


def _number(rubric: Rubric, text: str) -> ParsedAnswer:
    match = NUMBER.fullmatch(text.splitlines()[-1].replace("*", "").replace("`", "").strip())
    if match is None or (match[2] and float(match[2]) != rubric.scale[1]):
        raise Unparsable("its last line must be one number, and nothing else.")
    return ParsedAnswer(_on_scale(rubric, float(match[1]), "the number"), "\n".join(text.splitlines()[:-1]).strip())


def _json(rubric: Rubric, text: str) -> ParsedAnswer:
    try:
        fields = orjson.loads(text[text.find("{") : text.rfind("}") + 1])
    except orjson.JSONDecodeError as error:
        raise Unparsable(f"it must be one JSON object ({error}).") from error
    names = [*rubric.criteria] or [SCORE]
    scores = [_on_scale(rubric, fields.get(name), name) for name in names]
    return ParsedAnswer(fmean(scores), str(fields.get(REASONS) or ""))


def _on_scale(rubric: Rubric, value: object, name: str) -> float:
    low, high = rubric.scale
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise Unparsable(f"{name} must be a number from {low:g} to {high:g}.")
    return float(value)


FORMS: dict[str, Callable[[Rubric, str], ParsedAnswer]] = {
    "choice": _option,
    "pair": _option,
    "number": _number,
    "json": _json,
}
