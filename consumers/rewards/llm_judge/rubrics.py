"""A rubric: a Markdown file whose front matter gives the form of the answer, and whose body instructs the judge.

Invariant: every loaded rubric can be asked and answered; all others were refused in one line.
"""

from pathlib import Path
from typing import Annotated, Literal, Self

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from claw_r1.consumers.errors import ConsumerError

AnswerForm = Literal["number", "choice", "json", "pair"]
PAIR = {"A": 1.0, "B": 0.0, "tie": 0.5}
"""The options for a pair, and the value of each for the first of the two."""
LEVELS_MAX = 21
"""Whole numbers of a scale that are choices without being listed."""
SCORE, REASONS = "score", "reasons"
"""Fields of an answer in JSON."""


class RubricExample(BaseModel):
    """A text, and the answer that it should get."""

    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)
    text: str
    answer: str


def _named(criteria: object) -> object:
    """A list of criteria is one without explanations."""
    return {str(name): "" for name in criteria} if isinstance(criteria, list) else criteria


class Rubric(BaseModel):
    """The front matter, and `instructions`: the body."""

    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)

    answer: AnswerForm
    scale: tuple[FiniteFloat, FiniteFloat]
    """Lowest and highest value."""
    choices: dict[str, FiniteFloat] = {}
    """The options of the form choice: word -> value. Empty: the whole numbers of the scale."""
    criteria: Annotated[dict[str, str], BeforeValidator(_named)] = {}
    """Name -> meaning. In JSON each gets a score, the value is the mean; in other forms one
    answer weighs them all."""
    examples: tuple[RubricExample, ...] = ()
    instructions: str = Field(min_length=1)

    @property
    def options(self) -> dict[str, float]:
        """All allowed answers with their values; empty where they cannot be listed."""
        if self.answer == "pair":
            return PAIR
        if self.answer != "choice":
            return {}
        low, high = self.scale
        return self.choices or {str(level): float(level) for level in range(round(low), round(high) + 1)}

    @model_validator(mode="after")
    def _answerable(self) -> Self:
        low, high = self.scale
        if not low < high:
            raise ValueError(f"scale: {low:g} is not below {high:g}")
        if self.answer == "pair" and self.scale != (0, 1):
            raise ValueError("scale: of a pair it is [0, 1], the share of comparisons that are won")
        if self.choices and self.answer != "choice":
            raise ValueError("choices: only for answer: choice")
        if self.answer == "choice":
            self._check_choices(low, high)
        if self.answer == "json" and REASONS in self.criteria:
            raise ValueError(f"criteria: {REASONS} is the field of the judge's reasons")
        return self

    def _check_choices(self, low: float, high: float) -> None:
        if not self.choices and not (low.is_integer() and high.is_integer() and high - low < LEVELS_MAX):
            raise ValueError(
                f"choices: to be listed, where the scale has more than {LEVELS_MAX} whole numbers or others"
            )
        words = {word.strip().casefold() for word in self.options}
        if len(words) < max(2, len(self.options)) or "" in words:
            raise ValueError("choices: two or more words that differ are needed")
        if outside := [word for word, value in self.options.items() if not low <= value <= high]:
            raise ValueError(f"choices: the value of {outside[0]!r} is outside the scale")


def read_rubric(path: Path) -> Rubric:
    """Raises ConsumerError, in one line, for a file that is missing or no rubric."""
    try:
        return Rubric.model_validate(_fields(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        problem = f"{where}: {first['msg']}" if where else first["msg"].removeprefix("Value error, ")
        raise ConsumerError(f"rubric {path}: {problem}") from error
    except (OSError, ValueError) as error:
        raise ConsumerError(f"rubric {path}: {' '.join(str(error).split())}") from error


def _fields(text: str) -> dict[str, object]:
    """Raises ValueError for what has no front matter."""
    lines = text.splitlines()
    ends = [number for number, line in enumerate(lines) if line.rstrip() == "---"]
    if len(ends) < 2 or ends[0] != 0:
        raise ValueError("it must begin with front matter between two lines of ---")
    try:
        fields = yaml.safe_load("\n".join(lines[1 : ends[1]]))
    except yaml.YAMLError as error:
        raise ValueError(f"its front matter is not YAML: {error}") from error
    if not isinstance(fields, dict):
        raise ValueError("its front matter must be fields, such as answer and scale")
    body = "\n".join(lines[ends[1] + 1 :]).strip()
    if not body:
        raise ValueError("it has no body: nothing says what to judge")
    if "instructions" in fields:
        raise ValueError("instructions: they are the body, not a field")
    return {**fields, "instructions": body}
