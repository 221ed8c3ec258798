"""The reward of an episode of the verbs programs: the answers on stdout, judged by the rules of the game."""

import json

from claw_r1.agentflow.black_box import Outcome
from claw_r1.claw.demo.verbs.environment import Task, judge


def score(outcome: Outcome) -> float:
    """The sum of what each call earned, as the white-box flow has it; 1.0 without a fault. Raises ValueError for other output."""
    task = Task(tuple(outcome.task["observations"]))
    answers = [json.loads(line) for line in outcome.stdout.splitlines()]
    return sum(judge(task, index, text).reward for index, text in enumerate(answers))
