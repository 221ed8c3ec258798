"""Tasks from files: their order, and what is none."""

from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agentflow.errors import InvalidPlan
from agentflow.tasks import TaskList, order_of_run, read_tasks

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
