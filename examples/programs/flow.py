"""The agent that writes programs: shows the exercise, runs each reply, tells what failed, lets
the hidden tests judge."""

import asyncio
import os

from claw_r1.agentflow.bodies import JsonObject
from claw_r1.agentflow.episode import Episode
from claw_r1.agentflow.flow import AgentFlow
from claw_r1.claw.demo.turn import Turn
from examples.conversation import converse
from examples.programs.rules import ATTEMPTS_MAX, Case, Exercise, first_fault, prompt, source_of
from examples.programs.runner import UNCONFINED, ProgramLimits, run_program

SYSTEM = "Answer with one Python program in a fence of three backticks. No input, no files, only the standard library's small modules."
PROGRAMS_AT_ONCE = 4


class ProgramsFlow(AgentFlow):
    """The flow of one to three calls; the outcome is 1.0 for a program that passes all hidden tests."""

    def __init__(self) -> None:
        """Raises CannotConfine, so that nothing is played where programs cannot be confined."""
        self._limits = ProgramLimits(confined=os.environ.get(UNCONFINED) != "1")
        self._slots = asyncio.Semaphore(PROGRAMS_AT_ONCE)
        run_program("", [], self._limits)

    def task(self, seed: int) -> JsonObject:
        """The exercise in words, readable in the pool, and the seed that its tests come from."""
        return {"seed": seed, "text": Exercise.from_seed(seed).text}

    async def run(self, episode: Episode) -> None:
        """Until a program passes the examples, or the attempts are used up."""
        exercise = Exercise.from_seed(episode.task["seed"])

        async def answer(text: str) -> Turn:
            source = source_of(text)
            fault = await self._fault(source, exercise.examples)
            if fault is not None and episode.calls < ATTEMPTS_MAX:
                return Turn(reward=0.0, observation=fault)
            return Turn(
                reward=float(fault is None and await self._fault(source, exercise.tests) is None), observation=None
            )

        await converse(episode, prompt(exercise), answer, system=SYSTEM, max_tokens=512)

    async def _fault(self, source: str, cases: tuple[Case, ...]) -> str | None:
        """The first case that a program fails."""
        async with self._slots:
            outputs = await asyncio.to_thread(run_program, source, [case[0] for case in cases], self._limits)
        return first_fault(cases, [output.value for output in outputs], [output.error for output in outputs])
