"""Tasks in an order: a runner plays one ordinal after the other, and resumes in it after a restart.

Invariant: the task of an ordinal is a function of the tasks, the seed and the ordinal. Of a list of n tasks each n ordinals
are an epoch, in which each task comes once, shuffled by seed and epoch. Whether a task is held out is a function of its
content alone, so it is so after every restart, under every seed and wherever it stands in a file.

With a curriculum the task of an ordinal is a function of what is
known of the tasks, too.
"""

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import orjson

from claw_r1.agentflow.bodies import JsonObject
from claw_r1.agentflow.errors import InvalidPlan
from claw_r1.agentflow.flow import AgentFlow
from claw_r1.agentflow.seeds import derived_seed
from claw_r1.schemas.evaluation import reaches
from claw_r1.schemas.json_values import json_digest

Seed = tuple[int | str, ...]
DRAWS_MAX = 10_000
"""Seeds that are tried for one task of a flow that is, or is not, held out."""


class Tasks(Protocol):
    """The tasks of a run; `at` returns equal tasks for equal arguments and names."""

    @property
    def name(self) -> str:
        """Tells them from others."""

    @property
    def count(self) -> int | None:
        """The number of tasks; None where they have no end."""

    def at(self, ordinal: int, *seed: int | str) -> JsonObject:
        """The task of this ordinal; `seed` is any number of parts."""


class FlowTasks:
    """The tasks that a flow makes of seeds."""

    count: int | None = None

    def __init__(self, flow: AgentFlow, name: str | None = None) -> None:
        self._flow = flow
        self.name = name or type(flow).__qualname__

    def at(self, ordinal: int, *seed: int | str) -> JsonObject:
        """Returns the task that `AgentFlow.task` makes."""
        return self._flow.task(derived_seed(*seed, ordinal))


class TaskList:
    """The tasks of a file; the same content under another path is the same list."""

    def __init__(self, tasks: Sequence[JsonObject]) -> None:
        self.tasks = tasks
        self.count = len(tasks)
        digest = hashlib.sha256()
        for task in tasks:
            digest.update(orjson.dumps(task) + b"\n")
        self.name = digest.hexdigest()
        self._shuffled = lru_cache(maxsize=4)(self._shuffle)

    def at(self, ordinal: int, *seed: int | str) -> JsonObject:
        """Place `ordinal % n` of epoch `ordinal // n`."""
        epoch, place = divmod(ordinal, self.count)
        return self.tasks[self._shuffled(epoch, seed)[place]]

    def _shuffle(self, epoch: int, seed: Seed) -> list[int]:
        places = list(range(self.count))
        random.Random(derived_seed(*seed, "epoch", epoch)).shuffle(places)  # noqa: S311  # no secret
        return places


@dataclass(frozen=True, slots=True)
class HoldOut:
    """The choice of the tasks that are kept for evaluation. `name` tells it from others."""

    name: str
    holds: Callable[[JsonObject], bool]

    @classmethod
    def share(cls, share: float) -> "HoldOut":
        """So many of all tasks, by their digest: those of a smaller share are among those of a larger one."""
        below = share * 2**64
        return cls(f"{share!r}", lambda task: int(json_digest(task)[:16], 16) < below)

    @classmethod
    def listed(cls, tasks: TaskList) -> "HoldOut":
        """Holds out the tasks of a list."""
        digests = {json_digest(task) for task in tasks.tasks}
        return cls(tasks.name, lambda task: json_digest(task) in digests)

    def trained(self, tasks: Tasks) -> Tasks:
        """Returns the tasks that are left for training. Raises InvalidPlan where nothing is."""
        return self._part(tasks, held_out=False)

    def evaluated(self, tasks: Tasks) -> Tasks:
        """Returns the tasks that are held out. Raises InvalidPlan where nothing is."""
        return self._part(tasks, held_out=True)

    def _part(self, tasks: Tasks, *, held_out: bool) -> Tasks:
        if not isinstance(tasks, TaskList):
            drawn = _DrawnTasks(tasks, self, held_out)
            drawn.at(0)
            return drawn
        part = [task for task in tasks.tasks if self.holds(task) is held_out]
        if not part:
            raise InvalidPlan(f"{'none' if held_out else 'each'} of the {tasks.count} tasks is held out of training")
        return TaskList(part)


class _DrawnTasks:
    """The tasks without an end that are, or are not, held out: another seed is tried until one is."""

    count: int | None = None

    def __init__(self, tasks: Tasks, hold_out: HoldOut, held_out: bool) -> None:
        self._tasks, self._hold_out, self._held_out = tasks, hold_out, held_out
        self.name = f"{tasks.name}, {'' if held_out else 'not '}held out: {hold_out.name}"

    def at(self, ordinal: int, *seed: int | str) -> JsonObject:
        task = self._tasks.at(ordinal, *seed)
        for draw in count(1):
            if self._hold_out.holds(task) is self._held_out:
                return task
            if draw > DRAWS_MAX:
                break
            task = self._tasks.at(ordinal, *seed, "draw", draw)
        whether = "is" if self._held_out else "is not"
        raise InvalidPlan(f"of {DRAWS_MAX} tasks that the flow made none {whether} held out of training")


class Curriculum:
    """The tasks of a list, of which those at rest are drawn less.

    A task is at rest when all members of each of its latest groups
    solved it, or none did: there is little to learn from such a
    group. Of a task that has fewer groups nothing is known yet.
    """

    def __init__(self, tasks: Tasks, rate: float, groups: int, solved: float) -> None:
        """rate: that of a task at rest, beside 1. groups: those that
        are looked at. solved: the return of a solution. Raises
        InvalidPlan unless the tasks are a list.
        """
        if not isinstance(tasks, TaskList):
            raise InvalidPlan("--curriculum-rate is of --tasks: those that a flow makes of seeds do not come again")
        self._tasks, self._rate, self._groups, self._solved = tasks, rate, groups, solved
        self._digests = [json_digest(task) for task in tasks.tasks]
        self.count = tasks.count
        self.by_all: frozenset[str] = frozenset()
        self.by_none: frozenset[str] = frozenset()

    @property
    def at_rest(self) -> int:
        """The number of tasks at rest."""
        return len(self.by_all) + len(self.by_none)

    def learn(self, returns: Mapping[str, Sequence[Sequence[float]]]) -> None:
        """Takes over what is known now.

        returns: digest of a task -> lowest and highest return of its
        groups, the latest last.
        """
        by_all, by_none = set[str](), set[str]()
        for digest in self._digests:
            groups = returns.get(digest, ())[-self._groups :]
            if len(groups) < self._groups:
                continue
            if all(reaches(low, self._solved) for low, _ in groups):
                by_all.add(digest)
            elif not any(reaches(high, self._solved) for _, high in groups):
                by_none.add(digest)
        self.by_all, self.by_none = frozenset(by_all), frozenset(by_none)

    def at(self, ordinal: int, *seed: int | str) -> JsonObject:
        """Returns the task whose turn it is, or one drawn from all where that rests and has no luck."""
        task = self._tasks.at(ordinal, *seed)
        luck = random.Random(derived_seed(*seed, "curriculum", ordinal))  # noqa: S311  # no secret
        while self.rests(task) and luck.random() >= self._rate:
            task = luck.choice(self._tasks.tasks)
        return task

    def rests(self, task: JsonObject) -> bool:
        """Returns whether a task is at rest, as far as is known."""
        digest = json_digest(task)
        return digest in self.by_all or digest in self.by_none


def order_of_run(tasks: Tasks, run_id: str, channel: str, seed: int) -> str:
    """The name of what a run makes of these tasks under this seed: the front of its groups' ids."""
    return hashlib.sha256(orjson.dumps([run_id, channel, tasks.name, seed])).hexdigest()[:32]


def read_tasks(path: Path) -> TaskList:
    """The tasks of a file, or of all files of a directory (at any depth) in the order of their paths.

    Raises InvalidPlan, which names the line or row of what is no task.
    """
    if not path.exists():
        raise InvalidPlan(f"there is no {path}")
    files = sorted(file for file in path.rglob("*") if file.suffix in READERS) if path.is_dir() else [path]
    tasks: list[JsonObject] = []
    for file in files:
        reader = READERS.get(file.suffix)
        if reader is None:
            raise InvalidPlan(f"{file} is none of {', '.join(READERS)}, nor a directory of such files")
        try:
            tasks.extend(reader(file))
        except OSError as error:
            raise InvalidPlan(f"cannot read {file}: {error.strerror or error}") from error
    if not tasks:
        raise InvalidPlan(f"{path} holds no task")
    return TaskList(tasks)


def _json_lines(path: Path) -> Iterator[JsonObject]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                try:
                    yield _object(orjson.loads(line))
                except ValueError as error:
                    raise InvalidPlan(f"{path}, line {number}: not a JSON object: {error}") from error


def _parquet_rows(path: Path) -> Iterator[JsonObject]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise InvalidPlan(f"{path}: Parquet needs pyarrow, which the extra `consumers` installs") from error
    try:
        rows = parquet.read_table(path).to_pylist()
    except pyarrow.ArrowException as error:
        raise InvalidPlan(f"{path}: not Parquet: {str(error).splitlines()[0]}") from error
    for number, row in enumerate(rows, start=1):
        try:
            yield _object(orjson.loads(orjson.dumps(row)))
        except (TypeError, ValueError) as error:
            raise InvalidPlan(f"{path}, row {number}: cannot be written as JSON: {error}") from error


READERS: dict[str, Callable[[Path], Iterator[JsonObject]]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".parquet": _parquet_rows,
}


def _object(value: Any) -> JsonObject:  # any JSON value
    """The value itself. Raises ValueError unless it is an object."""
    if not isinstance(value, dict):
        raise ValueError(f"it is a {type(value).__name__}")
    return value
