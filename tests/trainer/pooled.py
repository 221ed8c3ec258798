"""Facts of made-up episodes, folded by the real folds into a pool and written to a real (memory) log."""

import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from claw_r1.datapool.fold.fold import fold
from claw_r1.datapool.fold.project import GroupImage, changes
from claw_r1.datapool.fold.state import Fact, GroupState
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.eventlog.records import Outgoing, Position
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.arrays import pack_floats, pack_ids
from claw_r1.schemas.events import Event, FactPosition, GroupRecord, Sampling, StepRecord, TrajectoryRecord, VersionSpan
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS, GROUPS, REWARDS, STEPS, TRAJECTORIES
from tests import facts

RUN = "run"
SETTINGS = LogSettings(partitions=2)
VOCABULARY = 32


class ReadRows(PoolRows):
    """Rows that are all there from the start, as a view that has caught up; as with a view, one thread adds while another reads."""

    def __init__(self) -> None:
        super().__init__(listed=True)
        self._lock = threading.RLock()

    def apply(self, topic: str, key: bytes, value: bytes | None) -> None:
        with self._lock:
            super().apply(topic, key, value)

    def groups(self) -> list[GroupRecord]:
        with self._lock:
            return super().groups()

    def members(self, record: GroupRecord) -> list[tuple[TrajectoryRecord, list[StepRecord]]] | None:
        with self._lock:
            return super().members(record)

    def forget(self, group_id: str) -> None:
        with self._lock:
            super().forget(group_id)

    def wait_caught_up(self, timeout_s: float) -> None:
        """Nothing is behind."""


@dataclass(frozen=True)
class Pooled:
    """The pool's rows, and the log that holds the facts."""

    pool: ReadRows
    log: MemoryLog


def pooled(history: Iterable[Event]) -> Pooled:
    """Write facts in order to a memory log, fold each where it fell, apply the rows."""
    log, pool = MemoryLog(SETTINGS), ReadRows()
    apply_to(pool, log, history)
    return Pooled(pool, log)


def apply_to(pool: PoolRows, log: MemoryLog, history: Iterable[Event]) -> None:
    """The same on a pool and a log that exist, for groups that are new to them."""
    for _, topic, key, value in rows_of(history, lambda item: log.append([item])[0]):
        pool.apply(topic, key, value)


def write_pool(log: MemoryLog, history: Iterable[Event]) -> None:
    """Facts and the pool's rows on one log, where a `PoolView` reads them."""
    topics = {topic.name: topic for topic in (STEPS, TRAJECTORIES, GROUPS)}
    for _, name, key, value in list(rows_of(history, lambda item: log.append([item])[0])):
        log.append([Outgoing(topic=topics[name], key=key, value=value, partition=0)])


def rows_of(
    history: Iterable[Event], append: Callable[[Outgoing], Position]
) -> Iterator[tuple[str, str, bytes, bytes | None]]:
    """(group_id, topic, key, value) of each row that the folds write while `history` is appended to a log."""
    states: dict[str, GroupState] = {}
    images: dict[str, GroupImage] = {}
    for fact in history:
        assert isinstance(fact, Fact)
        topic = REWARDS if isinstance(fact, facts.ON_REWARDS) else CALLS
        at = append(Outgoing.of(topic, group_key(fact.group_id), fact))
        position = FactPosition(topic=at.topic, partition=at.partition, offset=at.offset)
        group = fact.group_id
        states[group] = fold(states.get(group), fact, position)
        images[group], rows = changes(images.get(group), states[group])
        for row_key, row in rows.items():
            yield group, row_key.topic, row_key.key, row and row.value


def group(
    group_id: str,
    rewards: Sequence[float | None],
    *,
    version: int = 0,
    run: str = RUN,
    at_us: int = 0,
    temperature: float = 1.0,
    ids: Sequence[Sequence[int]] = ((5, 6, 7), (8, 9)),
    logprob: float = -3.0,
    **opened: object,
) -> list[Event]:
    """A declared, completed group: per reward a trajectory of `len(ids)` calls that extend each other."""
    made: list[Event] = []
    envelope = {"at_us": at_us, "run_id": run}
    fields = {"expected_size": len(rewards), **opened}
    made.append(facts.opened(group_id, envelope=facts.envelope(f"{group_id}-open", **envelope), **fields))
    for index, value in enumerate(rewards):
        name, prompt = f"t{index}", [1, 2 + index % 3]
        for number, response in enumerate(ids):
            made.append(
                facts.call(
                    group_id,
                    name,
                    f"c{number}",
                    envelope=facts.envelope(f"{group_id}-{name}-c{number}", **envelope),
                    prompt=facts.edge(prompt),
                    ids=tuple(response),
                    response_ids=pack_ids(response),
                    response_logprobs=pack_floats([logprob] * len(response)),
                    spans=(VersionSpan(run_id=run, version=version, start=0, end=len(response)),),
                    sampling=Sampling(temperature=temperature, top_p=1.0, top_k=0),
                    received_us=number,
                )
            )
            prompt = [*prompt, *response, 3]
        done = facts.envelope(f"{group_id}-{name}-done", **envelope)
        made.append(facts.completed(group_id, name, envelope=done, calls=len(ids), reward=value))
    return made


def random_groups(count: int, size: int, seed: int = 0, version: int = 0, run: str = RUN) -> list[Event]:
    """Groups of random tokens and rewards: the same ones for the same arguments, in any process."""
    dice = random.Random(seed)
    made: list[Event] = []
    for number in range(count):
        ids = [[dice.randrange(VOCABULARY) for _ in range(dice.randint(1, 5))] for _ in range(2)]
        rewards = [float(dice.random() < 0.5) for _ in range(size)]
        made += group(f"g{number:03d}", rewards, version=version, run=run, at_us=number, ids=ids)
    return made
