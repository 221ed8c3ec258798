"""Tasks from files: their order, and what is none."""

from collections import Counter
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from claw_r1.agentflow.bodies import JsonObject
from claw_r1.agentflow.episode import Episode
from claw_r1.agentflow.errors import InvalidPlan
from claw_r1.agentflow.flow import AgentFlow
from claw_r1.agentflow.tasks import Curriculum, FlowTasks, HoldOut, TaskList, Tasks, order_of_run, read_tasks
from claw_r1.schemas.json_values import json_digest

TASKS = [{"n": number} for number in range(7)]


def lines(path: Path, *values: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(orjson.dumps(value) + b"\n" for value in values))
    return path


def test_each_task_comes_once_per_epoch_in_an_order_of_seed_and_epoch() -> None:
    """n ordinals are every task once; another seed or epoch is another order; an ordinal alone says its task."""
    tasks = TaskList(TASKS)
    epochs = [[tasks.at(ordinal, 3) for ordinal in range(7 * epoch, 7 * epoch + 7)] for epoch in range(3)]
    assert all(sorted(epoch, key=lambda task: task["n"]) == TASKS for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert [tasks.at(ordinal, 4) for ordinal in range(7)] != epochs[0]
    assert TaskList(TASKS).at(17, 3) == epochs[2][3]


def test_a_directory_is_its_files_in_the_order_of_their_paths(tmp_path: Path) -> None:
    """JSONL and Parquet, at any depth; what is neither is left alone; blank lines are no tasks."""
    lines(tmp_path / "b.jsonl", {"n": 2}, {"n": 3})
    (tmp_path / "README.md").write_text("not a task")
    (tmp_path / "a").mkdir()
    pq.write_table(pa.table({"n": [0, 1], "text": ["x", None]}), tmp_path / "a" / "part.parquet")
    (tmp_path / "c.ndjson").write_text('\n{"n": 4}\n\n')
    assert [task["n"] for task in read_tasks(tmp_path).tasks] == [0, 1, 2, 3, 4]
    assert read_tasks(tmp_path).tasks[1] == {"n": 1, "text": None}


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("t.jsonl", b'{"n": 1}\n\n{"n": 2\n', "t.jsonl, line 3: not a JSON object"),
        ("t.jsonl", b'{"n": 1}\n[1]\n', "t.jsonl, line 2: not a JSON object: it is a list"),
        ("t.jsonl", b"\n", "holds no task"),
        ("t.csv", b"n\n1\n", "t.csv is none of .jsonl"),
        ("t.parquet", b"PAR?", "t.parquet: not Parquet"),
    ],
)
def test_what_is_no_task_is_named_by_its_place(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    """One line, with the number of the broken one."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidPlan) as refusal:
        read_tasks(tmp_path / name)
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_file_that_is_not_there_and_a_row_that_is_no_json(tmp_path: Path) -> None:
    """Both say what is wrong in a line."""
    with pytest.raises(InvalidPlan, match=r"there is no .*none.jsonl"):
        read_tasks(tmp_path / "none.jsonl")
    pq.write_table(pa.table({"n": [b"\xff"]}), tmp_path / "t.parquet")
    with pytest.raises(InvalidPlan, match=r"t.parquet, row 1: cannot be written as JSON"):
        read_tasks(tmp_path / "t.parquet")


def test_an_order_is_of_one_run_channel_content_and_seed() -> None:
    """The same content under another path is the same order; anything else makes another one."""
    tasks, others = TaskList(TASKS), TaskList(TASKS[1:])
    order = order_of_run(tasks, "r", "train", 0)
    assert order == order_of_run(TaskList(list(TASKS)), "r", "train", 0)
    changed = (tasks, "s", "train", 0), (tasks, "r", "val", 0), (tasks, "r", "train", 1), (others, "r", "train", 0)
    assert len({order, *(order_of_run(*words) for words in changed)}) == 5


MANY = [{"n": number, "text": f"question {number}"} for number in range(400)]


def held_out(tasks: Tasks, share: float) -> list[JsonObject]:
    part = HoldOut.share(share).evaluated(tasks)
    assert isinstance(part, TaskList)
    return list(part.tasks)


def test_a_share_is_held_out_by_content() -> None:
    """About so many; the same whatever the order of the file, the seed and the rest of it; a larger share holds the smaller."""
    out = held_out(TaskList(MANY), 0.1)
    assert 20 <= len(out) <= 60
    again = held_out(TaskList([dict(reversed(task.items())) for task in reversed(MANY)]), 0.1)
    assert sorted(task["n"] for task in again) == [task["n"] for task in out]
    fewer = held_out(TaskList(MANY[100:]), 0.1)
    assert fewer == [task for task in out if task["n"] >= 100]
    assert all(task in held_out(TaskList(MANY), 0.3) for task in out)


def test_what_is_held_out_is_never_trained() -> None:
    """Over whole epochs of any seed; and the order of what is left is another one."""
    tasks, hold_out = TaskList(MANY), HoldOut.share(0.1)
    trained, evaluated = hold_out.trained(tasks), hold_out.evaluated(tasks)
    assert trained.count is not None
    assert evaluated.count is not None
    assert trained.count + evaluated.count == 400
    played = {trained.at(ordinal, 3)["n"] for ordinal in range(trained.count)}
    assert len(played) == trained.count
    assert not played & {evaluated.at(ordinal, "val", 3)["n"] for ordinal in range(evaluated.count)}
    assert trained.name != tasks.name


class Dice(AgentFlow):
    """Tasks are one of twenty numbers."""

    def task(self, seed: int) -> JsonObject:
        return {"n": seed % 20}

    async def run(self, episode: Episode) -> None:
        raise NotImplementedError


def test_tasks_that_a_flow_makes_are_held_out_by_content_too() -> None:
    """Another seed is tried until the task is on the right side; the same ordinal is the same task after a restart."""
    sides = []
    for _ in range(2):
        hold_out, tasks = HoldOut.share(0.3), FlowTasks(Dice())
        trained, evaluated = hold_out.trained(tasks), hold_out.evaluated(tasks)
        sides.append([[part.at(ordinal, 7)["n"] for ordinal in range(200)] for part in (trained, evaluated)])
    assert sides[0] == sides[1]
    assert not set(sides[0][0]) & set(sides[0][1])
    assert set(sides[0][0]) | set(sides[0][1]) == set(range(20))
    assert trained.name != evaluated.name != tasks.name


def test_a_list_of_evaluation_leaves_its_tasks_out_of_training() -> None:
    """Those that stand in both; where none does, training is what it was."""
    own = TaskList([{"text": "question 3", "n": 3}, {"other": 1}])
    trained = HoldOut.listed(own).trained(TaskList(MANY))
    assert trained.count == 399
    assert trained.at(0).keys() == {"n", "text"}
    apart = HoldOut.listed(TaskList([{"other": 1}])).trained(TaskList(MANY))
    assert apart.name == TaskList(MANY).name


def test_a_share_that_leaves_a_side_empty_is_refused() -> None:
    """A list that is too short for it, and a flow that makes no such task."""
    nearly_none, nearly_all = HoldOut.share(1e-9), HoldOut.share(1 - 1e-9)
    for part, tasks, says in (
        (nearly_none.evaluated, TaskList(MANY), "none of the 400"),
        (nearly_all.trained, TaskList(MANY), "each of the 400"),
        (nearly_none.evaluated, FlowTasks(Dice()), "the flow made none is held out"),
        (nearly_all.trained, FlowTasks(Dice()), "the flow made none is not held out"),
    ):
        with pytest.raises(InvalidPlan, match=says):
            part(tasks)


def drawn(curriculum: Curriculum, ordinals: int, seed: int = 3) -> list[int]:
    return [curriculum.at(ordinal, seed)["n"] for ordinal in range(ordinals)]


def returns(**tasks: list[list[float]]) -> dict[str, list[list[float]]]:
    """Of `n4=[[0, 1]]`: the task with this number had one group with these returns."""
    return {json_digest({"n": int(name[1:])}): groups for name, groups in tasks.items()}


def test_without_history_a_curriculum_changes_nothing() -> None:
    """Each task once per epoch, in the order that it has without one; so it is with too few groups, and of unknown tasks."""
    plain = [TaskList(TASKS).at(ordinal, 3)["n"] for ordinal in range(70)]
    curriculum = Curriculum(TaskList(TASKS), 0.1, groups=2, solved=1.0)
    assert drawn(curriculum, 70) == plain
    curriculum.learn(returns(n1=[[0, 0]], n2=[[1, 1]], n99=[[0, 0], [0, 0]]))
    assert (drawn(curriculum, 70), curriculum.at_rest) == (plain, 0)


def test_tasks_that_all_or_none_solve_are_drawn_at_the_rate_and_never_left_out() -> None:
    """One of both in seven tasks: each of them comes a tenth as often as one of the others, which share the rest evenly."""
    curriculum = Curriculum(TaskList(TASKS), 0.1, groups=2, solved=1.0)
    curriculum.learn(returns(n1=[[0, 0.9], [0, 0]], n2=[[0, 0], [1, 1], [1, 2]]))
    assert (curriculum.by_none, curriculum.by_all) == tuple(frozenset({json_digest({"n": n})}) for n in (1, 2))
    counts = Counter(drawn(curriculum, 7000))
    others = [counts[n] for n in (0, 3, 4, 5, 6)]
    for n in (1, 2):
        assert 0.07 < counts[n] / (sum(others) / 5) < 0.13
    assert max(others) < 1.1 * min(others)


@pytest.mark.parametrize(
    "groups",
    [[[0, 0], [1, 1]], [[0, 0], [0, 1]], [[1, 1], [0, 1]], [[0, 0], [0, 0], [0, 1]], [[1, 1]]],
    ids=str,
)
def test_a_task_on_which_members_differ_does_not_rest(groups: list[list[float]]) -> None:
    """Within one of its latest groups, or between them: the latest are what counts."""
    curriculum = Curriculum(TaskList(TASKS), 0.1, groups=2, solved=1.0)
    curriculum.learn(returns(n1=[[0, 0], [0, 0]]))
    assert curriculum.at_rest == 1
    curriculum.learn(returns(n1=groups))
    assert curriculum.at_rest == 0


def test_a_curriculum_is_a_function_of_seed_and_what_is_known() -> None:
    """Another process that knows the same draws the same; another seed, or other knowledge, does not. Where all rest, all are drawn."""
    known = returns(n1=[[0, 0]], n2=[[0, 0]], n3=[[1, 1]])
    first, second = (Curriculum(TaskList(TASKS), 0.1, groups=1, solved=1.0) for _ in range(2))
    first.learn(returns(n5=[[0, 0]]))
    for each in (first, second):
        each.learn(known)
    assert drawn(first, 50) == drawn(second, 50) != drawn(first, 50, seed=4)
    second.learn(returns(n1=[[0, 0]]))
    assert drawn(first, 50) != drawn(second, 50)
    first.learn(returns(**{f"n{n}": [[0, 0]] for n in range(7)}))
    counts = Counter(drawn(first, 700))
    assert len(counts) == 7
    assert max(counts.values()) < 1.6 * min(counts.values())


def test_tasks_without_an_end_have_no_curriculum() -> None:
    """A task that never comes again has no history."""
    with pytest.raises(InvalidPlan, match="--curriculum-rate is of --tasks"):
        Curriculum(FlowTasks(Dice()), 0.1, groups=2, solved=1.0)
