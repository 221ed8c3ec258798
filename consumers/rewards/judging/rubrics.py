"""A rubric: how a judge is to answer, and what it is told. How one is read from its file: `rubric_files`.

Invariant: what stands in a rubric can be asked and answered; everything else was refused.
"""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, FiniteFloat, model_validator

AnswerForm = Literal["number", "choice", "json", "pair"]
PAIR = {"A": 1.0, "B": 0.0, "tie": 0.5}
"""What a pair is answered with, and what that is for the first of the two."""
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
    """Of the form choice: word -> value. Empty: the whole numbers of the scale."""
    criteria: Annotated[dict[str, str], BeforeValidator(_named)] = {}
    """Name -> what it means. In JSON each gets a score, and the value is their mean; in other forms one answer weighs them all."""
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
