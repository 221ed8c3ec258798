"""An answer is parsed or refused; nothing is assumed."""

import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_r1.consumers.rewards.llm_judge.answers import (
    MERGES,
    ParsedAnswer,
    Unparsable,
    merged,
    parsed,
    soft,
    without_thought,
)
from claw_r1.consumers.rewards.llm_judge.rubrics import Rubric

CHOICE = Rubric(answer="choice", scale=(0, 1), choices={"wrong": 0, "right": 1}, instructions="x")
NUMBER = Rubric(answer="number", scale=(0, 10), instructions="x")
JSON = Rubric(answer="json", scale=(1, 5), instructions="x")
MANY = Rubric(answer="json", scale=(1, 5), criteria={"brief": "", "kind": ""}, instructions="x")
PAIR = Rubric(answer="pair", scale=(0, 1), instructions="x")
ANSWERS = [
    (CHOICE, "right", 1),
    (CHOICE, " **Wrong**.\n", 0),
    (CHOICE, "<think>right? no</think>wrong", 0),
    (NUMBER, "7", 7),
    (NUMBER, "It is fine.\n\nScore: **7.5/10**", 7.5),
    (NUMBER, "0.", 0),
    (JSON, '{"reasons": "ok", "score": 4}', 4),
    (JSON, 'Here:\n```json\n{"score": 1.5}\n```', 1.5),
    (MANY, '{"reasons": "", "brief": 1, "kind": 4}', 2.5),
    (PAIR, "A", 1),
    (PAIR, "b", 0),
    (PAIR, "tie", 0.5),
]
REFUSED = [
    (CHOICE, ""),
    (CHOICE, "not right"),
    (CHOICE, "right or wrong"),
    (CHOICE, "<think>right"),
    (CHOICE, "1"),
    (NUMBER, "11"),
    (NUMBER, "-1"),
    (NUMBER, "7 or 8"),
    (NUMBER, "nan"),
    (NUMBER, "inf"),
    (NUMBER, "7/5"),
    (NUMBER, "seven"),
    (NUMBER, "7\nor so"),
    (NUMBER, "1" * 400),
    (JSON, "5"),
    (JSON, '{"score": true}'),
    (JSON, '{"score": "5"}'),
    (JSON, '{"score": null}'),
    (JSON, '{"score": 6}'),
    (JSON, '{"score": NaN}'),
    (JSON, '{"reasons": "score 5"}'),
    (JSON, '{"score": 5'),
    (MANY, '{"brief": 1}'),
    (PAIR, "both"),
]


@pytest.mark.parametrize(("rubric", "text", "value"), ANSWERS, ids=range(len(ANSWERS)))
def test_an_answer_of_the_form_is_its_value(rubric: Rubric, text: str, value: float) -> None:
    """Marks of Markdown, a label, a fence and thoughts may stand around it."""
    assert parsed(rubric, text).value == value


@pytest.mark.parametrize(("rubric", "text"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_no_answer_is_refused(rubric: Rubric, text: str) -> None:
    """With a line that can be said to the judge."""
    with pytest.raises(Unparsable, match=r"\."):
        parsed(rubric, text)


@given(st.text(), st.sampled_from([CHOICE, NUMBER, JSON, MANY, PAIR]))
def test_any_text_is_on_the_scale_or_refused(text: str, rubric: Rubric) -> None:
    """Nothing else comes of a reply."""
    with suppress(Unparsable):
        assert rubric.scale[0] <= parsed(rubric, text).value <= rubric.scale[1]


def test_thoughts_are_cut() -> None:
    """Whole, several, without their beginning, and without their end."""
    assert without_thought("<think>a</think>1<think>b</think> 2") == "1 2"
    assert without_thought("a</think>\n\n2") == "2"
    assert without_thought("2<think>a") == "2"


def listed(*tokens: dict[str, float]) -> list[dict[str, Any]]:
    """`logprobs.content`: per place the probabilities by token, the first of which was sampled."""
    return [
        {
            "token": next(iter(place)),
            "top_logprobs": [{"token": token, "logprob": math.log(share)} for token, share in place.items()],
        }
        for place in tokens
    ]


def test_a_soft_score_is_the_expectation_over_the_allowed_answers() -> None:
    """sum v(a) P(a) / sum P(a), at the first token behind thoughts and space; tokens that begin two answers, or none, are missing."""
    rubric = Rubric(answer="choice", scale=(0, 1), choices={"good": 1, "great": 0.5, "bad": 0}, instructions="x")
    place = {" Bad": 0.5, "goo": 0.2, "gre": 0.1, "g": 0.1, "x": 0.05, "good.": 0.05}
    answer = soft(rubric, listed({"<think>": 1.0}, {"good": 1.0}, {"</think>": 1.0}, {"\n": 1.0}, place))
    assert answer.value == pytest.approx((0.25 * 1 + 0.1 * 0.5) / 0.85)
    assert answer.missing == pytest.approx(0.15)


def test_a_soft_score_of_something_else_is_refused() -> None:
    """Where the engine was about to say something else, the shares of the rest mean nothing."""
    with pytest.raises(Unparsable):
        soft(CHOICE, listed({"The": 0.8, "right": 0.1, "wrong": 0.1}))
    with pytest.raises(Unparsable):
        soft(CHOICE, listed({"<think>": 1.0}, {"</think>": 1.0}))
    with pytest.raises(Unparsable):
        soft(CHOICE, listed())


YES_NO = Rubric(answer="choice", scale=(0, 1), choices={"yes": 1, "no": 0}, instructions="x")
LONGER_WORDS = [(PAIR, words) for words in ("Based", "Answer", "Both", "Assistant")] + [
    (YES_NO, words) for words in ("Not", "Note", "None", "yesterday", "no1")
]


@pytest.mark.parametrize(("rubric", "word"), LONGER_WORDS)
def test_a_longer_word_that_begins_like_an_option_is_not_that_option(rubric: Rubric, word: str) -> None:
    """`Based on…` says nothing for B: where most of the mass is there it is refused, and else it is missing."""
    first, second, *_ = rubric.options
    with pytest.raises(Unparsable):
        soft(rubric, listed({f" {word}": 0.9, first: 0.05, second: 0.05}))
    answer = soft(rubric, listed({first: 0.6, second: 0.2, word: 0.2}))
    assert (answer.value, answer.missing) == (pytest.approx(0.75), pytest.approx(0.2))


@pytest.mark.parametrize("token", ["B", " b", "B.", "B\n", "B\n\n", "B**", "B)", "B:"])
def test_an_option_with_marks_behind_it_is_that_option(token: str) -> None:
    """Tokens often hold the end of a line or of a sentence."""
    assert soft(PAIR, listed({token: 1.0})) == ParsedAnswer(0.0)


def test_votes_are_merged_with_their_spread() -> None:
    """Mean, median, the most frequent (several: their mean); the sample's standard deviation; one vote has none."""
    votes = [ParsedAnswer(value) for value in (0.0, 0.0, 1.0, 5.0)]
    assert {name: merged(votes, name).value for name in MERGES} == {"mean": 1.5, "median": 0.5, "majority": 0.0}
    assert merged(votes, "mean").spread == pytest.approx(math.sqrt(17 / 3))
    assert merged(votes[1:3], "majority").value == 0.5
    assert merged(votes[:1], "mean").spread is None
    assert merged([ParsedAnswer(0.0, "low"), ParsedAnswer(4.0, "high"), ParsedAnswer(5.0)], "median").reasons == "high"
