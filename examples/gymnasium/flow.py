"""An agent for any class of Gymnasium's shape (`reset`, `step`, `close`): a subclass says how to make it, show it and read an action.

class FrozenLake(GymnasiumFlow):
    def make(self): return gymnasium.make("FrozenLake-v1", is_slippery=False)
    def show(self, observation): return f"tile {observation}"
    def action(self, text): return ["left", "down", "right", "up"].index(text.strip())
"""

import asyncio
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from claw_r1.agentflow.bodies import JsonObject
from claw_r1.agentflow.episode import Episode
from claw_r1.agentflow.flow import AgentFlow
from claw_r1.claw.demo.turn import Turn
from examples.conversation import converse


class GymnasiumEnvironment(Protocol):
    """The methods of an environment that are called. Observations and actions are its own, hence Any."""

    def reset(self, *, seed: int) -> tuple[Any, Mapping[str, Any]]:
        """The first observation."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Mapping[str, Any]]:
        """Observation, reward, terminated, truncated, whatever else."""

    def close(self) -> None:
        """Give back what it holds."""


class GymnasiumFlow(AgentFlow):
    """All members of a group play the environment of one seed. The return is the sum of the rewards."""

    TURNS_MAX: ClassVar[int] = 40
    REPLY_TOKENS_MAX: ClassVar[int] = 16
    SYSTEM: ClassVar[str] = ""

    @abstractmethod
    def make(self) -> GymnasiumEnvironment:
        """A new environment, for one episode."""

    @abstractmethod
    def show(self, observation: Any) -> str:
        """Returns the text that the model reads."""

    @abstractmethod
    def action(self, text: str) -> Any:
        """The action that a reply means. Raises ValueError for none: the model is told so, and its turn is over."""

    def task(self, seed: int) -> JsonObject:
        """Gymnasium's seeds have 32 bits."""
        return {"seed": seed % 2**32}

    async def run(self, episode: Episode) -> None:
        """`make`, `reset` and `step` may block: they run in threads."""
        environment = await asyncio.to_thread(self.make)
        try:
            first, _ = await asyncio.to_thread(environment.reset, seed=episode.task["seed"])

            async def answer(text: str) -> Turn:
                try:
                    action = self.action(text)
                except ValueError as error:
                    reward, seen, over = 0.0, f"no action: {error}", False
                else:
                    observation, reward, terminated, truncated, _ = await asyncio.to_thread(environment.step, action)
                    seen, over = self.show(observation), terminated or truncated
                return Turn(float(reward), None if over or episode.calls >= self.TURNS_MAX else seen)

            await converse(episode, self.show(first), answer, system=self.SYSTEM, max_tokens=self.REPLY_TOKENS_MAX)
        finally:
            await asyncio.to_thread(environment.close)
