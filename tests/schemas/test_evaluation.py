"""The tags of evaluation groups say all that a reader needs, and nothing else is taken for one."""

from dataclasses import replace

import pytest

from claw_r1.schemas.evaluation import EvaluatedTask

TASK = EvaluatedTask(version=20, kind="sample", task=3, tasks=32, samples=4, every=10, solved=0.999)


def test_tags_are_read_as_they_were_written() -> None:
    """In any order, among other tags."""
    assert EvaluatedTask.of(["mine", *reversed(TASK.tags())]) == TASK
    assert (TASK.parts, TASK.size, TASK.part) == (64, 4, ("sample", 3))


def test_tags_say_whether_their_tasks_are_held_out() -> None:
    """Tags that say nothing of it are of tasks that may be trained on."""
    assert EvaluatedTask.of(replace(TASK, held_out=True).tags()) == replace(TASK, held_out=True)
    silent = [tag for tag in TASK.tags() if "held_out" not in tag]
    assert (EvaluatedTask.of(silent), TASK.held_out) == (TASK, False)


@pytest.mark.parametrize("tags", [(), ("evaluation",), TASK.tags()[1:], ("evaluation.version=x", *TASK.tags()[1:])])
def test_other_tags_are_no_evaluation(tags: tuple[str, ...]) -> None:
    """A group of the channel val that somebody else plays is left alone."""
    assert EvaluatedTask.of(tags) is None
