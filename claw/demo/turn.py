"""What an answer leads to: the one word that the rules of all environments share."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Turn:
    """What one call earned, and what the agent sees next; no observation means that the episode is over."""

    reward: float
    observation: str | None


Answer = Callable[[str], Turn]
"""One episode as a function of the agent's texts, called in their order until there is no observation."""
