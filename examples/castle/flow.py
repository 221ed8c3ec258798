"""The agents of the castle: one for a model that was warmed up on it, one that tells any model the rules."""

from typing import ClassVar

from claw_r1.agentflow.bodies import JsonObject
from claw_r1.agentflow.episode import Episode
from claw_r1.agentflow.flow import AgentFlow
from examples.castle.rules import Castle, Visit, attempt, view
from examples.conversation import converse


class CastleFlow(AgentFlow):
    """20 to 32 calls; the outcome is 1.0 for a way out, less than 0.5 for none."""

    SYSTEM: ClassVar[str] = ""

    def task(self, seed: int) -> JsonObject:
        """The castle: readable in the pool."""
        castle = Castle.from_seed(seed)
        return {"ways": castle.ways, "keys": sorted(castle.keys), "locks": sorted(castle.locks)}

    async def run(self, episode: Episode) -> None:
        """Each turn the model sees its room, and all that it saw and did before."""
        task = episode.task
        castle = Castle(task["ways"], frozenset(task["keys"]), frozenset(task["locks"]))
        await converse(episode, view(castle, Visit()), attempt(castle), system=self.SYSTEM, max_tokens=6)


class ExplainedCastleFlow(CastleFlow):
    """For a model that has not seen the words."""

    SYSTEM: ClassVar[str] = (
        "You are in a castle and want to leave it within 32 turns. You see the way out of your room, a key that lies there, "
        "and whether the way is locked. Answer with one action and nothing else: go n, go e, go s, go w, take, open, back. "
        "A lock takes one key."
    )
