"""The protocol of a scorer: its questions and its opinions."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import force_setattr

from claw_r1.consumers.errors import ConsumerError
from claw_r1.consumers.rewards.judged import Judged
from claw_r1.consumers.rewards.values import one_line

CHARACTERS_PER_TOKEN = 4
TOKENS_MAX = 1 << 40
"""The most tokens of one request; a server that counts more does not count."""


class Opinion(Struct, frozen=True, kw_only=True):
    """The opinion on one subject, not yet kept."""

    values: tuple[float | None, ...]
    """`Judged.answers` of them; None: nothing to say."""
    detail: str = ""
    """Reasons, for people: one line of Unicode, whatever it was made of."""
    spread: float | None = None
    """Sample standard deviation of several votes."""
    tokens: int = 0
    """Prompt and completion tokens."""
    calls: tuple[str, ...] = ()
    """The judge's own calls as captured: `group/trajectory/call`."""

    def __post_init__(self) -> None:
        force_setattr(self, "detail", one_line(self.detail))


class GaveUp(ConsumerError):
    """The scorer cannot tell, and trying again would not help. Becomes a `ScoringFailed`."""

    def __init__(self, reason: str, detail: str, *, tokens: int = 0, calls: tuple[str, ...] = ()) -> None:
        """reason: a stable word, as in the table of docs/rewards.md; detail: a line for people; the rest: its cost."""
        super().__init__(detail := one_line(detail))
        self.reason, self.detail, self.tokens, self.calls = reason, detail, tokens, calls


class RewardScorer(Protocol):
    """One slot at work. Used by one thread."""

    def judge(self, subjects: Sequence[Judged]) -> Sequence["Future[Opinion]"]:
        """One answer per subject, in any order and side by side as the kind likes; each within its deadline.

        A future's exception is GaveUp where that subject cannot be judged; any other is a bug of ours and ends the consumer.
        """

    def close(self) -> None:
        """Gives processes and connections back. Idempotent."""


@dataclass(slots=True)
class TokenCost:
    """The tokens of all requests to a server on one subject."""

    tokens: int = 0
    remark: str = ""
    """For the verdict, where some of them are a guess."""

    def add(self, answer: Any, *texts: object) -> None:
        """One answer: prompt and completion by its `usage`; a guess by `texts` where it counts no prompt, or none that can be."""
        usage = answer.get("usage") if isinstance(answer, Mapping) else None
        counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")] if isinstance(usage, dict) else []
        possible = [count for count in counts if isinstance(count, int) and 0 <= count < TOKENS_MAX]
        if counts and counts[0] in possible and counts[0]:
            self.tokens += sum(possible)
        else:
            self.tokens += guessed(*texts)
            self.remark = "tokens are estimated: the server did not count them"


def guessed(*texts: object) -> int:
    """Tokens by the characters of these values as Python writes them; nothing of what is nested without end."""
    try:
        return sum(len(repr(each)) for each in texts) // CHARACTERS_PER_TOKEN
    except RecursionError:
        return 0
