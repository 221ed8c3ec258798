"""The rule of the demo, and the episodes that its reward model learns from, against the environment."""

import random

import pytest

from claw_r1.claw.demo.verbs.environment import Task, judge, right_call
from claw_r1.claw.demo.verbs.reward_model import labelled_episode
from claw_r1.claw.demo.verbs.scorers import returned
from claw_r1.consumers.rewards.judged import Judged, JudgedCall


def judged(task: Task, texts: list[str | None]) -> Judged:
    calls = tuple(
        JudgedCall(call_id=str(n), reply={"role": "assistant", "content": text}) for n, text in enumerate(texts)
    )
    return Judged(scope="trajectory", group_id="g", task={"observations": list(task.observations)}, calls=calls)


@pytest.mark.parametrize("seed", range(20))
def test_the_rule_pays_what_the_environment_pays(seed: int) -> None:
    """Also of an episode that went on after its fault, and of a reply without words."""
    task = Task.from_seed(seed)
    right: list[str | None] = [right_call(observation) for observation in task.observations]
    assert returned(judged(task, right)) == 1.0
    assert returned(judged(task, [None, *right])) == 0.0
    assert returned(judged(task, right[:1])) == judge(task, 0, str(right[0])).reward
    assert returned(judged(task, [*right[:-1], "say nothing"])) == pytest.approx(0.5)


def test_an_episode_of_the_reward_model_is_labelled_as_the_environment_pays() -> None:
    """Solved is a return of 1; both come; the same seed draws the same."""
    rng = random.Random(3)
    episodes = [labelled_episode(rng) for _ in range(300)]
    for episode in episodes:
        observations = tuple(message["content"] for message in episode.messages[::2])
        replies = [message["content"] for message in episode.messages[1::2]]
        right = [text == right_call(seen) for text, seen in zip(replies, observations, strict=True)]
        assert episode.faultless == right
        assert all(right[:-1])
        assert not episode.solved or observations[-1][1] == "="
    assert 0.35 < sum(episode.solved for episode in episodes) / len(episodes) < 0.65
    again = random.Random(3)
    assert [labelled_episode(again) for _ in range(10)] == episodes[:10]
