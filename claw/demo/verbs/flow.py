"""The agent of the verbs environment: shows an observation to the model, plays its answer,
assigns what it earned."""

from typing import Any

from claw_r1.agentflow.bodies import ChatReply, JsonObject
from claw_r1.agentflow.episode import Episode
from claw_r1.agentflow.flow import AgentFlow
from claw_r1.claw.demo.verbs.environment import Task, judge

SAMPLING: dict[str, Any] = {
    "temperature": 1.0,
    "max_tokens": 7,
    # A mark such as <|user|> within an answer is a fault, so it has to be seen; it also keeps the text exact, so that
    # the next prompt extends this one. A field of vLLM's; its values are JSON, hence Any.
    "skip_special_tokens": False,
}


class VerbsFlow(AgentFlow):
    """Step rewards go to their calls at once; the last call's reward is the outcome of the
    episode. It speaks chat."""

    def task(self, seed: int) -> JsonObject:
        """The observations in order: readable in the pool, and all that `run` needs."""
        return {"observations": list(Task.from_seed(seed).observations)}

    async def run(self, episode: Episode) -> None:
        """Two or three calls, fewer after a fault."""
        task = Task(tuple(episode.task["observations"]))
        messages: list[JsonObject] = []
        episode.outcome = 0.0
        for index, observation in enumerate(task.observations):
            messages.append(self.shown(index, observation))
            reply = await self.ask(episode, messages)
            messages.append(reply.message)
            turn = judge(task, index, reply.text)
            if turn.observation is None:
                episode.outcome = turn.reward
                return
            await episode.reward(turn.reward, call_id=reply.call_id)

    def shown(self, index: int, observation: str) -> JsonObject:
        """An observation as this protocol says it."""
        return shown(index, observation)

    async def ask(self, episode: Episode, conversation: list[JsonObject]) -> ChatReply:
        """One call."""
        return await episode.chat(conversation, **SAMPLING)


class MessagesVerbsFlow(VerbsFlow):
    """The same agent in Anthropic's messages (`claw demo --protocol messages`)."""

    def shown(self, index: int, observation: str) -> JsonObject:
        """A tool's result is a block of the user's."""
        result = {"type": "tool_result", "tool_use_id": f"turn-{index}", "content": observation}
        return {"role": "user", "content": observation if index == 0 else [result]}

    async def ask(self, episode: Episode, conversation: list[JsonObject]) -> ChatReply:
        """Its body has no field for marks: one that is sampled is not seen, and the next prompt begins anew."""
        return await episode.message(conversation, temperature=1.0, max_tokens=SAMPLING["max_tokens"])


class ResponsesVerbsFlow(VerbsFlow):
    """The same agent in OpenAI's responses (`claw demo --protocol responses`)."""

    def shown(self, index: int, observation: str) -> JsonObject:
        """A tool's result is an item."""
        if index == 0:
            return {"role": "user", "content": observation}
        return {"type": "function_call_output", "call_id": f"turn-{index}", "output": observation}

    async def ask(self, episode: Episode, conversation: list[JsonObject]) -> ChatReply:
        """One call."""
        sampling = {name: value for name, value in SAMPLING.items() if name != "max_tokens"}
        return await episode.respond(conversation, max_output_tokens=SAMPLING["max_tokens"], **sampling)


class SilentVerbsFlow(VerbsFlow):
    """The same agent, which says nothing of what it earned: readers of the log judge it (`claw demo --reward`)."""

    async def run(self, episode: Episode) -> None:
        """Plays an episode with as many calls; no reward."""
        observations = episode.task["observations"]
        task, messages = Task(tuple(observations)), list[JsonObject]()
        for index, observation in enumerate(observations):
            messages.append(shown(index, observation))
            reply = await episode.chat(messages, **SAMPLING)
            messages.append(reply.message)
            if judge(task, index, reply.text).observation is None:
                return


def shown(index: int, observation: str) -> JsonObject:
    """The message of an observation: the user asks, afterwards a tool answers."""
    if index == 0:
        return {"role": "user", "content": observation}
    return {"role": "tool", "tool_call_id": f"turn-{index}", "content": observation}
