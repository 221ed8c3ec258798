"""The values of a verdict, from the return value of a rule: finite numbers or None, as many as the subject asks for.
Pure."""

from typing import Any

from claw_r1.consumers.finite import finite
from claw_r1.consumers.rewards.judged import Judged
from claw_r1.consumers.rewards.verdict import Verdict

DETAIL_CHARACTERS_MAX = 2000
MANY = ("steps", "group")


class ValueRefused(ValueError):
    """A return value that is no verdict; `reason` is the stable word of `ScoringFailed`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def verdict_of(returned: Any, judged: Judged) -> tuple[list[float | None], str, float | None]:
    """Values, detail and spread of whatever a rule returned (hence Any). Raises ValueRefused."""
    verdict = returned if isinstance(returned, Verdict) else Verdict(returned)
    values = values_of(verdict.value, judged)
    spread = None if verdict.spread is None else number_of(verdict.spread)
    return values, one_line(str(verdict.detail)), spread


def values_of(returned: Any, judged: Judged) -> list[float | None]:
    """One value per answer of the subject. Raises ValueRefused: not_a_number, wrong_length."""
    if returned is None:
        return [None] * judged.answers
    is_list = isinstance(returned, (list, tuple)) or bool(getattr(returned, "shape", ()))
    several = list(returned) if is_list else [returned]
    if len(several) != judged.answers:
        got = f"a list of {len(several)}" if is_list else "one value"
        raise ValueRefused("wrong_length", f"{got} for {judged.answers} answers of scope {judged.scope}")
    return [None if value is None else number_of(value) for value in several]


def number_of(value: Any) -> float:
    """A finite number: also a bool, and what numpy and torch call a scalar. Raises ValueRefused."""
    try:
        return finite(value)
    except ValueError as error:
        raise ValueRefused("not_a_number", one_line(str(error))) from error


def one_line(text: str, characters_max: int = DETAIL_CHARACTERS_MAX) -> str:
    """For a detail: without line breaks and what no log can show."""
    line = " ".join(text.encode("utf-8", "replace").decode().replace("\0", " ").split())
    return line if len(line) <= characters_max else line[: characters_max - 1] + "…"
