"""What a kind of scorer is asked, and what it answers."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol

from msgspec import Struct
from msgspec.structs import force_setattr

from consumers.errors import ConsumerError
from consumers.rewards.judged import Judged
from consumers.rewards.values import one_line


class Opinion(Struct, frozen=True, kw_only=True):
    """What was said of one subject, not yet kept."""

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
        """reason: a stable word, as in the table of docs/rewards.md; detail: a line for people; the rest: what it cost all the same."""
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
