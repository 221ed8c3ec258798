"""What requests to a server cost, in tokens: as it counts them, else as many as the text may have."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CHARACTERS_PER_TOKEN = 4
TOKENS_MAX = 1 << 40
"""Of one request; a server that counts more does not count."""


@dataclass(slots=True)
class TokenCost:
    """Of all requests on one subject."""

    tokens: int = 0
    remark: str = ""
    """For the verdict, where some of them are a guess."""

    def add(self, answer: Any, *shown: object) -> None:
        """One answer: prompt and completion by its `usage`; a guess by `shown` where it counts no prompt, or none that can be."""
        usage = answer.get("usage") if isinstance(answer, Mapping) else None
        counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")] if isinstance(usage, dict) else []
        possible = [count for count in counts if isinstance(count, int) and 0 <= count < TOKENS_MAX]
        if counts and counts[0] in possible and counts[0]:
            self.tokens += sum(possible)
        else:
            self.tokens += guessed(*shown)
            self.remark = "tokens are estimated: the server did not count them"


def guessed(*shown: object) -> int:
    """By the characters of these values as Python writes them; nothing of what is nested without end."""
    try:
        return sum(len(repr(each)) for each in shown) // CHARACTERS_PER_TOKEN
    except RecursionError:
        return 0
