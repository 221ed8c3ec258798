"""An episode of turns through the gateway: show an observation, play the reply, assign what it earned."""

from collections.abc import Awaitable, Callable
from typing import Any

from claw_r1.agentflow.bodies import JsonObject
from claw_r1.agentflow.episode import Episode
from claw_r1.claw.demo.turn import Turn


async def converse(
    episode: Episode, first: str, answer: Callable[[str], Turn | Awaitable[Turn]], *, system: str = "", **sampling: Any
) -> None:
    """Until a turn has no observation. The conversation is only appended to, so an episode is one sequence.

    Step rewards that are not 0 go to their calls at once, the last turn's is the outcome. `sampling`: fields of OpenAI's
    body, hence Any. `temperature` is 1 and marks within a reply are seen, which keeps its text exact.
    """
    messages: list[JsonObject] = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": first})
    episode.outcome = 0.0
    while True:
        reply = await episode.chat(messages, **{"temperature": 1.0, "skip_special_tokens": False, **sampling})
        turn = answer(reply.text)
        turn = turn if isinstance(turn, Turn) else await turn
        if turn.observation is None:
            episode.outcome = turn.reward
            return
        if turn.reward:
            await episode.reward(turn.reward, call_id=reply.call_id)
        messages += [reply.message, tool_message(episode.calls, turn.observation)]


def tool_message(number: int, content: str) -> JsonObject:
    """Makes the message of a tool's result for the `number`-th call (from 1)."""
    return {"role": "tool", "tool_call_id": f"turn-{number}", "content": content}
