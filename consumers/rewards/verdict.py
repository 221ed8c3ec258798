"""The return value of a rule for which a bare number is too little. Imports msgspec alone, so that a rule is quick to
load."""

from collections.abc import Sequence

from msgspec import Struct


class Verdict(Struct, frozen=True):
    """`from claw_r1.consumers.rewards.verdict import Verdict`: values with words."""

    value: "float | Sequence[float | None] | None" = None
    """One number; of scope steps and group one per call or member. None: nothing to say."""
    detail: str = ""
    """Reasons, for people; one line of at most 2,000 characters is kept."""
    spread: float | None = None
    """Sample standard deviation, where several judgements were taken together."""
