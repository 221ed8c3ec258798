"""The view of the pool at size: `python -m bench.datapool_view` prints one JSON object; `measure()` gives it.

All times are CPU times of this process, so that a busy machine does not show. What is measured: rows as the streams write them (made by the real folds) applied to `PoolRows`, without the broker.
`view_seconds_100k`: CPU seconds to take in 100k steps of 512+128 tokens and to look once at every group, at 4 calls a
trajectory and 8 trajectories a group, of which one in 10 has a quality and five scores on every step. `view_bytes_per_step`: growth of the process's resident memory per step.
`listed_seconds_100k`: of a view with columns, which people and pages ask; `view_…` is of a trainer's. `view_start_s`, `view_start_tail_s`: seconds
until such a view of all these steps, ended before, has its rows again, and until it has a hundredth more; `trainer_start_…` of a trainer's.
`trainer_rss_mb`, `view_rss_mb`: resident memory of a process of its own with such a view (no Kafka client in it).
`select_first_cpu_s_100k`, `select_idle_cpu_s_100k`: a trainer's look at all of it while its batch is not whole (one group in
10 may be trained, the others wait for a quality), the first one and one after which nothing changed.
`query_ms_100k`: the slowest of the questions, each the median of 5. `batch_256x…_ms`: 256 rows of 1024+512 and 4096+1024
tokens assembled for a plan of selected groups from their facts on the log's memory twin (decoded, digested, masks made), median
of 9.
"""

import gc
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.episodes import call, prompt_edge
from claw_r1.datapool.batch.plan import assemble
from claw_r1.datapool.batch.selection import Selector, select
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.fold.fold import fold
from claw_r1.datapool.fold.project import changes
from claw_r1.datapool.runs import RunIndex
from claw_r1.datapool.view.listing.pool_filter import PoolFilter
from claw_r1.datapool.view.listing.query import find_groups, find_steps, find_trajectories
from claw_r1.datapool.view.planned_rows import rows_of
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.datapool.view.snapshot import ViewFile, listed_rows
from claw_r1.datapool.view.why import Perspective, why
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.arrays import pack_floats
from claw_r1.schemas.events import (
    CallCaptured,
    Envelope,
    FactPosition,
    GroupOpened,
    StepCurated,
    TrajectoryCompleted,
    VersionSpan,
)
from tests.trainer.pooled import apply_to

RUN = "bench"
MEMBERS = 8
JUDGED = 10
"""One group in so many has scores."""
Written = tuple[str, bytes, bytes | None]


def measure(steps: int = 100_000) -> dict[str, float]:
    """All figures of this file."""
    batches = {f"batch_256x{a + b}_ms": round(batch_ms(a, b), 2) for a, b in ((1024, 512), (4096, 1024))}
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as alone:
        memory = {f"{whose}_rss_mb": alone.submit(_rss_mb, whose, steps).result() for whose in ("trainer", "view")}
    return {**view_figures(steps), **memory, **batches}


def view_figures(steps: int) -> dict[str, float]:
    """Start-up and memory of a trainer's view and of a listed one over so many steps; questions to the listed one."""
    bare, listed = PoolRows(), PoolRows(listed=True)
    figures = {f"view_{name}": value for name, value in _filled(bare, steps).items()}
    looks = _look_ms(bare, len(bare.groups()))
    again = _restarted(bare, figures["view_steps"], "trainer", PoolRows)
    del bare
    listed_seconds = _filled(listed, steps)["seconds_100k"]
    asked = _questions(listed, len(listed.groups()))
    questions = {name: round(_median_ms(ask, 5), 2) for name, ask in asked.items()}
    return {
        **figures,
        **{f"select_{name}_cpu_s_100k": round(ms * 100 / figures["view_steps"], 6) for name, ms in looks.items()},
        "listed_seconds_100k": listed_seconds,
        "query_ms_100k": max(questions.values()),
        **{f"query_{name}_ms": value for name, value in questions.items()},
        **_restarted(listed, figures["view_steps"], "view", listed_rows),
        **again,
    }


def _rss_mb(whose: str, steps: int) -> float:
    """The memory of a process with such a view, which was looked at once."""
    rows = PoolRows(listed=whose == "view")
    _filled(rows, steps)
    return round(_resident_bytes() / 1e6, 1)


def _restarted(rows: PoolRows, steps: float, whose: str, empty: Callable[[], PoolRows]) -> dict[str, float]:
    """Ends a view of so many steps, and begins it again from its file: as it was, and with a hundredth that is new."""
    with TemporaryDirectory() as directory:
        ended, begun = (ViewFile(Path(directory) / "bench.view", "bench", empty=empty) for _ in range(2))
        saved_s = _seconds(lambda: ended.save(rows, {}))
        closed_s = _seconds(lambda: ended.close(rows))
        bytes_ = ended.path.stat().st_size
        again: list[PoolRows] = []
        start_s = _seconds(lambda: again.append(begun.restored(dict)[0]))
        new = range(int(steps) // (MEMBERS * 4), int(steps * 1.01) // (MEMBERS * 4))
        tail = [row for number in new for row in group_rows(number, 4, 512, 128)]
        tail_s = _seconds(lambda: [again[0].apply(*row) for row in tail])
        begun.close(again[0])
    return {
        f"{whose}_start_s": round(start_s, 3),
        f"{whose}_start_tail_s": round(start_s + tail_s, 3),
        f"{whose}_save_s": round(saved_s + closed_s, 3),
        f"{whose}_file_bytes_per_step": round(bytes_ / steps),
    }


def _seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def _filled(rows: PoolRows, steps: int) -> dict[str, float]:
    """The figures of `rows` that take in so many steps and are looked at once."""
    calls, before, seconds = 4, _resident_bytes(), 0.0
    for number in range(steps // (MEMBERS * calls)):
        written = list(group_rows(number, calls, 512, 128))
        began = time.process_time()
        for topic, key, value in written:
            rows.apply(topic, key, value)
        seconds += time.process_time() - began
    began = time.process_time()
    held = len(rows.groups()) * MEMBERS * calls
    seconds += time.process_time() - began
    return {
        "steps": held,
        "seconds_100k": round(seconds * 100_000 / held, 2),
        "bytes_per_step": round((_resident_bytes() - before) / held),
    }


def _look_ms(rows: PoolRows, groups: int) -> dict[str, float]:
    spec = BatchSpec(groups_per_batch=groups, group_size=MEMBERS, quality_min=0.5, quality_missing="wait")
    selector = Selector(rows, spec, RUN)
    return {
        "first": _median_ms(lambda: selector.select(3, ()), 1),
        "idle": _median_ms(lambda: selector.select(3, ()), 9),
    }


def _questions(rows: PoolRows, groups: int) -> dict[str, Callable[[], object]]:
    asked = Perspective(run_id=RUN, version=3, spec=BatchSpec(group_size=MEMBERS))
    last, runs = f"g{groups - 1:06d}", RunIndex()
    return {
        "steps_rare": lambda: find_steps(rows, PoolFilter(quality_max=0.5), limit=20),
        "steps_none": lambda: find_steps(rows, PoolFilter(agent="nobody", reward_min=9.0), limit=20),
        "steps_tag": lambda: find_steps(rows, PoolFilter(tag=("nothing",), version_min=1), limit=20),
        "steps_score": lambda: find_steps(rows, PoolFilter(score=("entropy@1<=0.0",)), limit=20),
        "steps_page": lambda: find_steps(rows, PoolFilter(trainable=True, channel="train"), (last, "", ""), 20),
        "trajectories_none": lambda: find_trajectories(rows, PoolFilter(reward_min=99.0), limit=20),
        "trajectories_text": lambda: find_trajectories(rows, PoolFilter(text="no such thing"), limit=20),
        "groups_quality": lambda: find_groups(rows, PoolFilter(quality_max=0.0), limit=20),
        "groups_none": lambda: find_groups(rows, PoolFilter(tag=("nothing",)), limit=20),
        "why_group": lambda: why(rows, runs, asked, last),
        "why_trajectory": lambda: why(rows, runs, asked, f"{last}-t3"),
        "why_call": lambda: why(rows, runs, asked, f"{last}-t3-1"),
    }


def batch_ms(prompt: int, response: int) -> float:
    """Median milliseconds for 256 rows of these sizes."""
    rows, log = PoolRows(), MemoryLog(LogSettings(partitions=1))
    for number in range(256 // MEMBERS):
        apply_to(rows, log, _facts(number, f"g{number:06d}", 1, prompt, response))
    spec = BatchSpec(groups_per_batch=256 // MEMBERS, group_size=MEMBERS)
    chosen = select(rows, spec, 3, RUN, ()).chosen
    plan = assemble(chosen, spec, run_id=RUN, sequence=0, version=3, seed=0, envelope=_envelope("plan"))

    def assembled() -> None:
        made = rows_of(plan, log.lookup(), None)
        if (len(made), sum(map(len, made))) != (256, 256 * (prompt + response)):
            raise AssertionError("not the rows that were asked for")

    return _median_ms(assembled, 9)


def group_rows(number: int, calls: int, prompt: int, response: int) -> Iterator[Written]:
    """(topic, key, value) of the rows of one whole group, as a flush at its end writes them."""
    state, group_id = None, f"g{number:06d}"
    facts = _facts(number, group_id, calls, prompt, response)
    for offset, fact in enumerate(facts):
        state = fold(state, fact, FactPosition(topic="claw.calls", partition=0, offset=number * 1000 + offset))
    assert state is not None  # there are facts
    for row_key, row in changes(None, state)[1].items():
        yield row_key.topic, row_key.key, row and row.value


def _facts(
    number: int, group_id: str, calls: int, prompt: int, response: int
) -> Iterator[GroupOpened | CallCaptured | TrajectoryCompleted | StepCurated]:
    dice = random.Random(number)
    yield GroupOpened(envelope=_envelope(f"{group_id}-o"), group_id=group_id, expected_size=MEMBERS)
    for member in range(MEMBERS):
        trajectory_id = f"{group_id}-t{member}"
        for turn in range(calls):
            yield _call(dice, group_id, trajectory_id, turn, prompt, response)
        done = _envelope(f"{trajectory_id}-done")
        yield TrajectoryCompleted(
            envelope=done,
            group_id=group_id,
            trajectory_id=trajectory_id,
            status="completed",
            calls=calls,
            reward=member / 8,
        )
    for member in range(MEMBERS if number % JUDGED == 0 else 0):
        trajectory_id = f"{group_id}-t{member}"
        for turn in range(calls):
            yield StepCurated(
                envelope=_envelope(f"{trajectory_id}-q{turn}"),
                group_id=group_id,
                trajectory_id=trajectory_id,
                call_id=f"{trajectory_id}-{turn}",
                quality=0.1 if number % 1000 == 0 else 0.9,
                scores={"entropy@1": 0.9, "format@1": 1.0, "length@1": 0.9, "repetition@1": 1.0, "tool_calls@2": None},
                who="b",
            )


def _call(
    dice: random.Random, group_id: str, trajectory_id: str, number: int, prompt: int, response: int
) -> CallCaptured:
    return call(
        group_id,
        trajectory_id,
        number,
        prompt_edge(dice.randbytes(prompt * 4)),
        dice.randbytes(response * 4),
        envelope=_envelope(f"{trajectory_id}-{number}"),
        response_logprobs=pack_floats([-0.5] * response),
        spans=(VersionSpan(run_id=RUN, version=3, start=0, end=response),),
        request=prompt_edge(b"{}"),
        response_body=b"{}",
        tags=(),
    )


def _envelope(event_id: str) -> Envelope:
    return Envelope(event_id=event_id, occurred_at_us=1, producer="bench", run_id=RUN)


def _median_ms(work: Callable[[], object], times: int) -> float:
    taken = []
    for _ in range(times):
        began = time.process_time()
        work()
        taken.append((time.process_time() - began) * 1000)
    return statistics.median(taken)


def _resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000), indent=1))
