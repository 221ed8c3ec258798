"""The answers of commands. A command returns one, or yields several as they come; how they are printed is
decided here alone."""

from collections.abc import Iterable
from dataclasses import dataclass

import orjson

from claw_r1.claw.notice import notice, terminal_text


@dataclass(frozen=True, slots=True)
class Answer:
    """The same result for programs and for a person, and the exit code. Of several answers
    the highest code counts."""

    value: object = None
    """The object that `--json` prints on one line, or a function that makes it, called for a program only;
    None: nothing is printed there."""
    text: str | Iterable[str] = ()
    """A paragraph, or lines; a generator is run for a person only."""
    code: int = 0
    hint: str | None = None
    """A line on stderr, for a person only."""


Answers = Answer | Iterable[Answer]


def emit(answers: Answers, *, as_json: bool) -> int:
    """Prints each answer at once; returns the exit code."""
    code = 0
    for answer in (answers,) if isinstance(answers, Answer) else answers:
        if as_json and answer.value is not None:
            value = answer.value() if callable(answer.value) else answer.value
            print(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode(), flush=True)
        elif not as_json:
            _tell(answer)
        code = max(code, answer.code)
    return code


def _tell(answer: Answer) -> None:
    """Texts hold what agents and clients wrote, wherever they come from: each is escaped here, once."""
    if answer.hint is not None:
        notice(answer.hint)
    lines = (answer.text,) if isinstance(answer.text, str) else tuple(answer.text)
    if lines:
        print(terminal_text("\n".join(lines)), flush=True)
