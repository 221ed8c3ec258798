"""What others wrote stays inside its quotation, whatever it says."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_r1.consumers.rewards.judged import Judged
from claw_r1.consumers.rewards.llm_judge.prompts import questions
from claw_r1.consumers.rewards.llm_judge.quoting import defused, mark, quotation
from claw_r1.consumers.rewards.llm_judge.rubrics import Rubric
from tests.consumers.rewards.llm_judge.attempts import ATTEMPTS
from tests.consumers.rewards.llm_judge.subjects import call, says, subject

RUBRIC = Rubric(answer="choice", scale=(0, 1), instructions="Is it right?")
HARMLESS = "get c"
TOKENS = re.compile(
    r"<\|\S+?\|>|<\uff5c\S+?\uff5c>|\uff1c\||</?s>|<<?/?SYS>|\[/?(?:INST|gMASK)\]|<(?:start|end)_of_turn>|</?think>|</?tool_\w+>|<sop>|\]~|\[e~\["
)


def prompt(judged: Judged) -> str:
    (question,) = questions(judged, RUBRIC, opponents_max=1, both_ways=True, task=True)
    return question.messages[-1]["content"]


def ours(text: str) -> list[str]:
    """The lines that are not quoted, without the hash in the fences."""
    fence = re.search(r"^===== ([0-9a-f]{16})$", text, re.MULTILINE)
    assert fence is not None
    lines = text.split("\n")
    return [line.replace(fence[1], "MARK") for line in lines if not line.startswith("| ")]


@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=ATTEMPTS)
@pytest.mark.parametrize("place", ["reply", "user", "tool", "role", "function", "task"])
def test_a_quotation_is_left_by_no_attempt(attempt: str, place: str) -> None:
    """Outside the quotation stands what stands there for a harmless text; no control token, mark or odd line end is left."""

    def judged(text: str) -> Judged:
        before = {
            "user": says(text, "user"),
            "tool": says(text, "tool"),
            "role": says("find c", text),
            "function": {"role": "assistant", "tool_calls": [{"function": {"name": text, "arguments": text}}]},
        }.get(place, says("find c", "user"))
        one = subject()
        reply = text if place == "reply" else HARMLESS
        return Judged(
            scope="call", group_id="g", calls=(call(reply, before),), task={"x": text if place == "task" else one.scope}
        )

    text = prompt(judged(HARMLESS + attempt))
    assert ours(text) == ours(prompt(judged("unknown" if place == "role" else HARMLESS)))
    assert not TOKENS.search(text)
    assert text.splitlines() == text.split("\n")
    assert text.encode().decode() == text


@given(st.text(st.characters(codec=None), max_size=200))
def test_any_text_is_quoted_line_by_line(text: str) -> None:
    """Two fences, a heading, and lines that begin with the sign of a quotation."""
    first, heading, *lines, last = quotation([("user", text)]).split("\n")
    assert first == last == f"===== {first[-16:]}"
    assert heading == "user:"
    assert lines
    assert all(line.startswith("| ") for line in lines)
    assert not any(first[-16:] in line for line in lines)


@given(st.text(alphabet="<>|[]/INSTs\uff5c~be_ \n"))
def test_a_defused_text_has_no_control_token(text: str) -> None:
    """Neither as it was, nor put together by what was put into it."""
    assert not TOKENS.search(defused(text))


def test_a_mark_stands_not_in_the_text_and_is_repeated() -> None:
    """A text that holds its first mark gets another; equal texts have equal marks, so that a retry has an equal body."""
    assert mark("a") == mark("a") != mark("b")

    class Prophet(str):  # no text holds its own hash, but for one that says so
        __slots__ = ()

        def __contains__(self, part: object) -> bool:
            return part == mark("a")

    assert mark(Prophet("a")) != mark("a")
