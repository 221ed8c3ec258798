"""The agents of the word problems: one for a model that was warmed up on them, one that
tells any model the rules."""

from typing import ClassVar

from claw_r1.agentflow.bodies import JsonObject
from claw_r1.agentflow.episode import Episode
from claw_r1.agentflow.flow import AgentFlow
from examples.calculator.rules import Problem, attempt
from examples.conversation import converse


class CalculatorFlow(AgentFlow):
    """Two or three calls; the outcome is 1.0 for the right number and 0.0 for another or none."""

    SYSTEM: ClassVar[str] = ""
    REPLY_TOKENS_MAX: ClassVar[int] = 16

    def task(self, seed: int) -> JsonObject:
        """The story, and what is right: readable in the pool."""
        problem = Problem.from_seed(seed)
        return {"story": problem.story, "solution": list(problem.solution), "result": problem.result}

    async def run(self, episode: Episode) -> None:
        """The model is shown the story alone."""
        task = episode.task
        problem = Problem(task["story"], tuple(task["solution"]), task["result"])
        await converse(episode, problem.story, attempt(problem), system=self.SYSTEM, max_tokens=self.REPLY_TOKENS_MAX)


class ExplainedCalculatorFlow(CalculatorFlow):
    """For a model that has not seen the notation."""

    SYSTEM: ClassVar[str] = (
        "Solve the problem step by step. Write <<6+3>> to call the calculator, once per message, and wait for its answer. "
        "When you know the result, write it as #### 9 and nothing after it."
    )
    REPLY_TOKENS_MAX: ClassVar[int] = 256
