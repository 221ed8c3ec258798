"""The dashboard's questions to the pool at size: `python -m bench.dashboard --only pool`.

n trajectories of 3 calls, 8 to a group, without tokens, as rows that the streams would write, applied to `PoolRows`. Reading is
CPU time of this process; the questions, which people wait for, are wall time and each a p95 over every column and both directions.
`read_ratio`: steps per CPU-second of a listed view ÷ those of a bare one, the median of rounds on the first trajectories, in turn.
`rss_mb`: resident memory of a process that read everything into a listed view alone, questions asked.
`list_ms`: 100 rows of a list that is opened, in order of ids, anywhere; `sort_ms`: by each column of each kind, its first rows and
those in its middle; `filter_ms`: the first rows of what each of some filters finds, by several columns; `count_ms`: how many a filter finds, and each column's counts per value;
`text_ms`: the first rows of what has a text in its ids, tags, task or notes. `first_sort_ms`: the slowest question right after reading, which
puts ids in order; `live_ms`: a p95 of lists by columns that other rows make, each just after a row has come.
"""

import gc
import json
import multiprocessing
import os
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, product
from pathlib import Path

from claw_r1.datapool.view.listing.pages import COLUMNS, RowKind, count, facets
from claw_r1.datapool.view.listing.pool_filter import EVERYTHING, PoolFilter
from claw_r1.datapool.view.listing.standing import StandingOrder, StandingRow
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.schemas.codec import encode
from claw_r1.schemas.events import Curation, GroupMember, GroupRecord, RewardSlot, StepRecord, Timings, TrajectoryRecord
from claw_r1.schemas.keys import group_key, step_key, trajectory_key
from claw_r1.schemas.topics import GROUPS, STEPS, TRAJECTORIES

MEMBERS, CALLS = 8, 3
TASKS, AGENTS, VERSIONS = 500, 5, 60
BEGAN_US = 1_790_000_000_000_000
ROUNDS, ROUND_GROUPS = 5, 250
Written = tuple[str, bytes, bytes]
KINDS: tuple[RowKind, ...] = ("groups", "trajectories", "steps")
FILTERS = (
    PoolFilter(agent="agent-1"),
    PoolFilter(ready=True, reward_min=0.5),
    PoolFilter(tag=("rare",)),
    PoolFilter(tag=("maths", "hard")),
    PoolFilter(quality_max=0.2, trainable=True),
    PoolFilter(score=("entropy@1<=0.05",)),
    PoolFilter(version_min=VERSIONS - 2, channel="train"),
    PoolFilter(trajectory="t-00000123-4"),
    PoolFilter(group="g-00000123"),
    PoolFilter(agent="nobody"),
)
TEXTS = ("00012", "hard", "task 77", "No Such Thing", "odd note 9", "t-00000001-1")


def measure(n: int = 100_000) -> dict[str, float]:
    """All figures of this file."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:  # a process of its own, for its memory
        figures = pool.apply(_listed_figures, (n,))
    return {"trajectories": n, "read_ratio": read_ratio(min(n // MEMBERS, ROUND_GROUPS)), **figures}


def read_ratio(groups: int) -> float:
    """The median of rounds, each a bare and a listed view of the same rows, in turn."""
    written = list(chain.from_iterable(map(group_rows, range(groups))))
    ratios = [_read_s(PoolRows(), written) / _read_s(_listed(), written) for _ in range(ROUNDS)]
    return round(statistics.median(ratios), 3)


def _listed_figures(n: int) -> dict[str, float]:
    rows, seconds = _listed(), 0.0
    for number in range(n // MEMBERS):
        seconds += _read_s(rows, list(group_rows(number)))
    first = _p95_ms([lambda kind=kind: _shown(rows, kind) for kind in KINDS], times=1)
    figures = {name: _p95_ms(questions) for name, questions in _questions(rows).items()}
    figures["live_ms"] = _p95_ms(_live(rows))
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {
        "read_steps_per_cpu_s": round(n * CALLS / seconds),
        "rss_mb": round(resident / 1e6, 1),
        "first_sort_ms": first,
        **figures,
    }


def _shown(
    rows: PoolRows,
    kind: RowKind,
    pool_filter: PoolFilter = EVERYTHING,
    *,
    sort: str = "id",
    descending: bool = False,
    depth: float = 0.0,
) -> list[StandingRow]:
    """100 rows of a list that is opened, as `GET rows` answers. depth: the share of the rows before them."""
    order = StandingOrder(rows, kind, pool_filter, sort=sort, descending=descending)
    return order.rows(rows, int(len(order) * depth), 100, [name for name in COLUMNS[kind] if name != "id"])


def _questions(rows: PoolRows) -> dict[str, list[Callable[[], object]]]:
    columns = [(kind, name, down) for kind in KINDS for name in COLUMNS[kind] for down in (False, True)]
    depths = (0.0, 0.5, 0.99)
    return {
        "list_ms": [lambda k=kind, d=depth: _shown(rows, k, depth=d) for kind, depth in product(KINDS, depths)],
        "sort_ms": [
            lambda k=k, s=s, d=d, at=at: _shown(rows, k, sort=s, descending=d, depth=at)
            for (k, s, d), at in product(columns, (0.0, 0.5))
        ],
        "filter_ms": [
            lambda k=kind, f=each, s=sort: _shown(rows, k, f, sort=s, descending=True)
            for kind, each, sort in product(KINDS, FILTERS, ("id", "tokens", "doubt", "task", "version_max"))
        ],
        "count_ms": [
            *(lambda k=kind, f=each: count(rows, k, f) for kind, each in product(KINDS, FILTERS)),
            *(lambda k=k, s=s: facets(rows, k, EVERYTHING, s) for k in KINDS for s in COLUMNS[k] if s != "id"),
        ],
        "text_ms": [lambda k=kind, t=text: _shown(rows, k, PoolFilter(text=t)) for kind, text in product(KINDS, TEXTS)],
    }


def _live(rows: PoolRows) -> list[Callable[[], object]]:
    """Each question has a row come in before it."""
    written = {kind: [row for row in group_rows(7) if row[0].endswith(kind)] for kind in KINDS}

    def ask(kind: RowKind, sort: str, changed: RowKind) -> object:
        rows.apply(*written[changed][0])
        return _shown(rows, kind, sort=sort, descending=True)

    made = [(kind, name) for kind in KINDS for name in COLUMNS[kind] if COLUMNS[kind][name].read is None]
    return [lambda k=k, s=s, c=changed: ask(k, s, c) for (k, s), changed in product(made, KINDS)]


def group_rows(number: int) -> Iterator[Written]:
    """(topic, key, value) of the rows of one group, with words and numbers as pools have them."""
    dice, group_id = random.Random(number), f"g-{number:08d}"
    tags = tuple(dice.sample(["maths", "hard", "code", "web"], dice.randint(0, 2))) + ("rare",) * (number % 500 == 0)
    shared = {"group_id": group_id, "channel": dice.choice(["train"] * 9 + ["val"]), "run_id": f"run-{number % 3}"}
    task = json.dumps(
        {"question": f"task {number % TASKS}: how many sheep are there in the field?", "seed": number % TASKS}
    )
    agent, version = f"agent-{number % AGENTS}", dice.randrange(VERSIONS)
    versions = {"min_version": version, "max_version": version + dice.randint(0, 2)}
    members = []
    for member in range(MEMBERS):
        place = {**shared, "trajectory_id": f"t-{number:08d}-{member}", "agent": agent, "task": task, **versions}
        at_us, value = (
            BEGAN_US + number * 1_000_000 + dice.randrange(10**9),
            dice.choice([0.0, 0.25, 1.0, dice.random()]),
        )
        calls = [f"c-{number:08d}-{member}-{call}" for call in range(CALLS)]
        for call_id in calls:
            yield (
                STEPS.name,
                step_key(group_id, place["trajectory_id"], call_id),
                encode(_step(dice, place, call_id, at_us)),
            )
        names = (("agent", "outcome"), ("judge", "style"), ("rule", "format"))
        slots = tuple(RewardSlot(source=s, name=n, value=dice.random(), revision=0, event_id="e") for s, n in names)
        record = TrajectoryRecord(
            **place, status="completed", status_us=at_us + 9_000_000, registered_us=at_us, last_progress_us=at_us,
            calls=tuple(calls), offsets=tuple(range(CALLS)), rewards=slots[: 1 + number % 3], return_total=value,
            trainable_calls=CALLS, ready=number % 7 != 0, reasons=() if number % 7 else ("rewards_missing",), digest="0" * 64,
        )  # fmt: skip
        yield TRAJECTORIES.name, trajectory_key(group_id, place["trajectory_id"]), encode(record)
        members.append(
            GroupMember(trajectory_id=place["trajectory_id"], status="completed", ready=True, digest="0" * 64)
        )
    yield GROUPS.name, group_key(group_id), encode(
        GroupRecord(
            **shared, **versions, declared=True, declared_us=BEGAN_US + number, expected_size=MEMBERS, task=task, tags=tags,
            agent=agent, members=tuple(members), ready=number % 7 != 0, reward_mean=dice.random(), reward_std=dice.random(),
            last_progress_us=BEGAN_US + number, digest="0" * 64,
        )
    )  # fmt: skip


def _step(dice: random.Random, place: dict[str, object], call_id: str, at_us: int) -> StepRecord:
    judged = dice.random() < 0.1
    note = f"an odd note {dice.randrange(100)}" if judged else None
    curation = Curation(quality=dice.random(), note=note, tags=("seen",), who="b", scores={"entropy@1": dice.random()})
    return StepRecord(
        **place, call_id=call_id, first_received_us=at_us + dice.randrange(10**6), prompt_length=dice.randrange(4000),
        response_length=dice.randrange(900), status="completed", finish_reason="stop", trainable=True, digest="0" * 64,
        reward_total=dice.choice([None, dice.random()]), curation=curation if judged else None, worker_id=f"w{dice.randrange(4)}",
        timings=Timings(received_us=at_us, dispatched_us=at_us, done_us=at_us + dice.randrange(10**7)),
    )  # fmt: skip


def _listed() -> PoolRows:
    return PoolRows(listed=True)


def _read_s(rows: PoolRows, written: Iterable[Written]) -> float:
    began = time.process_time()
    for topic, key, value in written:
        rows.apply(topic, key, value)
    return time.process_time() - began


def _p95_ms(questions: Iterable[Callable[[], object]], times: int = 3) -> float:
    """Over all questions, each asked several times, as whoever waits for them sees it."""
    taken = []
    for question in [each for each in questions for _ in range(times)]:
        began = time.perf_counter()
        question()
        taken.append((time.perf_counter() - began) * 1000)
    return round(sorted(taken)[int(len(taken) * 0.95)], 1)
