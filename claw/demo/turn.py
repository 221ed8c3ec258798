"""The result of a model's reply: the one word that the rules of all environments share."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Turn:
    """The reward of one call, and the agent's next observation; no observation means that the episode is over."""

    reward: float
    observation: str | None


TurnOf = Callable[[str], Turn]
"""One episode as a function of the agent's texts, called in their order until there is no observation."""
