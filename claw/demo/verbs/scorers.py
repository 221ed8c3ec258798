"""The environment's own reward, as a rule on the log: `use: claw_r1.claw.demo.verbs.scorers:returned`, scope
trajectory."""

from claw_r1.claw.demo.verbs.environment import Task, judge
from claw_r1.consumers.rewards.judged import Judged


def returned(judged: Judged) -> float:
    """The return of an episode of verbs, from its task and its replies."""
    task, total = Task(tuple(judged.task["observations"])), 0.0
    for index, call in enumerate(judged.calls):
        turn = judge(task, index, str((call.reply or {}).get("content") or ""))
        total += turn.reward
        if turn.observation is None:
            break
    return total
