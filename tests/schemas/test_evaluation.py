"""The tags of evaluation groups say all that a reader needs, and nothing else is taken for one."""

from dataclasses import replace

import pytest

from claw_r1.schemas.evaluation import EvaluatedTask, reaches

TASK = EvaluatedTask(version=20, kind="sample", task=3, tasks=32, samples=4, every=10, solved=0.999)


def test_tags_are_read_as_they_were_written() -> None:
    """In any order, among other tags."""
    assert EvaluatedTask.of(["mine", *reversed(TASK.tags())]) == TASK
    assert (TASK.parts, TASK.size, TASK.part) == (64, 4, ("sample", 3))


def test_a_bound_is_reached_but_for_rounding() -> None:
    """By the calls to which they are given, rewards of 0.1, 0.2 and 0.7 add up to 1 or a little less."""
    assert 0.1 + (0.2 + 0.7) < 1.0
    assert reaches(0.1 + (0.2 + 0.7), 1.0)
    assert reaches(-0.3, -(0.1 + 0.2))
    assert not reaches(0.999999, 1.0)


def test_tags_say_whether_their_tasks_are_held_out() -> None:
    """Tags that say nothing of it are of tasks that may be trained on."""
    assert EvaluatedTask.of(replace(TASK, held_out=True).tags()) == replace(TASK, held_out=True)
    silent = [tag for tag in TASK.tags() if "held_out" not in tag]
    assert (EvaluatedTask.of(silent), TASK.held_out) == (TASK, False)


IMPOSSIBLE = (
    {"every": 0},
    {"every": -2},
    {"task": 32},
    {"task": -1},
    {"task": 0, "tasks": 0},
    {"samples": -1},
    {"version": -1},
    {"version": 2**63},
    {"tasks": 2**63},
    {"samples": 2**63},
    {"every": 2**63},
)
"""Numbers with which no runner opens a group."""


@pytest.mark.parametrize(
    "tags",
    [
        (),
        ("evaluation",),
        TASK.tags()[1:],
        ("evaluation.version=x", *TASK.tags()[1:]),
        (f"evaluation.version={'9' * 5000}", *TASK.tags()[1:]),
        *(replace(TASK, **numbers).tags() for numbers in IMPOSSIBLE),  # type: ignore[arg-type]  # numbers by name
    ],
)
def test_other_tags_are_no_evaluation(tags: tuple[str, ...]) -> None:
    """A group of the channel val that somebody else plays is left alone."""
    assert EvaluatedTask.of(tags) is None
