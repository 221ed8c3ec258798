"""Rows of a plan as examples: responses in the order of the plan's calls, rewards where their calls end."""

from array import array

import numpy as np

from claw_r1.datapool.batch.sequences import CallTokens, rows
from claw_r1.schemas.events import BatchAssembled, FactPosition, PlannedStep, PlannedTrajectory
from claw_r1.trainer.learn.examples import by_trajectory, column
from claw_r1.trainer.plan.learner_batch import examples_of
from tests import facts


def call(name, prompt, response):
    return CallTokens(
        call_id=name,
        prompt=array("i", prompt).tobytes(),
        response=array("i", response).tobytes(),
        logprobs=[-1.0] * len(response),
        versions=[0] * len(response),
        temperature=1.0,
    )


def planned(trajectory_id, rewards):
    steps = tuple(
        PlannedStep(
            call_id=name,
            position=FactPosition(topic="calls", partition=0, offset=index),
            digest="",
            trained=name != "untrained",
            reward=reward,
        )
        for index, (name, reward) in enumerate(rewards.items())
    )
    return PlannedTrajectory(group_id="g", trajectory_id=trajectory_id, reward=1.0, advantage=0.0, steps=steps)


def test_calls_of_two_conversations_are_in_the_order_of_the_plan():
    """A sub-agent's calls stand in a row of their own; over the trajectory, tokens are in the order of the calls."""
    main = [call("a", [1], [2, 3]), call("c", [1, 2, 3, 9], [4])]
    sub = [call("b", [7], [8]), call("d", [7, 8, 9], [5, 6])]
    rewards = {"a": 0.0, "b": 0.25, "untrained": 0.125, "c": 0.0, "d": 0.5}
    plan = BatchAssembled(
        envelope=facts.envelope(),
        run_id="run",
        sequence=0,
        version=0,
        spec="{}",
        trajectories=(planned("s", {"x": 1.0}), planned("t", rewards)),
        seed=0,
    )
    of_other = rows([call("x", [1, 2], [3])], 0)
    of_both = rows([main[0], sub[0], main[1], sub[1]], 1)
    assert len(of_both) == 2
    examples = examples_of([*of_other, *of_both], plan)
    in_time = dict(by_trajectory(examples))
    ids = np.concatenate([each.ids[each.at] for each in examples])
    assert ids[in_time[1]].tolist() == [2, 3, 8, 4, 5, 6]
    assert column(examples, "rewards")[in_time[1]].tolist() == [0, 0, 0.375, 0, 0, 0.5]
    assert column(examples, "rewards")[in_time[0]].tolist() == [1.0]
    assert column(examples, "responses")[in_time[1]].tolist() == [1, 1, 2, 4, 5, 5]
