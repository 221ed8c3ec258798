"""The options of a person about a key, read: durations, model aliases, sampling parameters, who it is for."""

import math
import re
from collections.abc import Sequence
from typing import get_args

from claw_r1.claw.errors import CannotRun
from claw_r1.gateway.errors import InvalidRequest
from claw_r1.gateway.paths import checked_id
from claw_r1.gateway.settings import SamplingName

DURATION = re.compile(r"(\d{1,9})([smhd])")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
DAYS_MAX = 36_500
"""A time that is further away has no date, or fits no event."""


def duration_us(text: str) -> int:
    """Microseconds of `90s`, `15m`, `12h`, `30d`. Raises CannotRun."""
    match = DURATION.fullmatch(text.strip())
    if match is None:
        raise CannotRun(f"{text} is no duration: a number and s, m, h or d, for example 12h or 30d")
    if (seconds := int(match[1]) * SECONDS[match[2]]) > DAYS_MAX * SECONDS["d"]:
        raise CannotRun(f"{text} is longer than {DAYS_MAX} days; without an end a key is in force until it is revoked")
    return seconds * 1_000_000


def aliases_of(words: Sequence[str]) -> dict[str, str]:
    """`claude-*=tiny` as model asked for, a name or a pattern of `*` and `?` -> model served. Raises CannotRun."""
    return dict(_pair(word, "--alias 'claude-*=MODEL'") for word in words)


def sampling_of(words: Sequence[str]) -> dict[str, float]:
    """`temperature=1` as name -> value. Raises CannotRun."""
    parameters = {}
    for name, value in (_pair(word, "--sampling temperature=1") for word in words):
        if name not in get_args(SamplingName):
            raise CannotRun(f"--sampling {name}: it is one of {', '.join(get_args(SamplingName))}")
        try:
            parameters[name] = float(value)
        except ValueError as broken:
            raise CannotRun(f"--sampling {name}={value}: the value is a number") from broken
        if not math.isfinite(parameters[name]):
            raise CannotRun(f"--sampling {name}={value}: the value is a finite number")
    return parameters


def checked_word(word: str, flag: str) -> str:
    """A name or scope as ids may be. Raises CannotRun."""
    try:
        return checked_id(word, flag)
    except InvalidRequest as unusable:
        raise CannotRun(unusable.message) from unusable


def _pair(word: str, example: str) -> tuple[str, str]:
    left, equals, right = (part.strip() for part in word.partition("="))
    if not (left and equals and right):
        raise CannotRun(f"{word}: it is {example}")
    return left, right
