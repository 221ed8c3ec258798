"""The view of the pool at size: rows as the streams write them (made by the real folds) applied to `PoolRows`, without the broker.

Times are CPU times of this process, so that a busy machine does not show; `…_start_s` and `…_save_s` go by the clock.
`view_seconds_100k`: to take in 100k steps of 512+128 tokens and to look once at every group, at 4 calls a trajectory and 8
trajectories a group, of which one in 10 has a quality and five scores on every step. `view_bytes_per_step`: growth of the
process's resident memory. `listed_seconds_100k`: of a view with columns, which people and pages ask; `view_…` is of a trainer's.
`view_start_s`, `view_start_tail_s`: until such a view of all these steps, ended before, has its rows again, and until it has a
hundredth more; `trainer_start_…` of a trainer's. `trainer_rss_mb`, `view_rss_mb`: of a process of its own with such a view.
`select_first_cpu_s_100k`, `select_idle_cpu_s_100k`: a trainer's look at all of it while its batch is not whole (one group in 10
may be trained, the others wait for a quality), the first one and one after which nothing changed. `batch_256x…_ms`: 256 rows of 1024+512 and 4096+1024 tokens assembled for a plan of selected groups from their
facts on the log's memory twin (decoded, digested, masks made).
"""

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.episodes import call, prompt_edge
from bench.medians import median_ms, resident_bytes, seconds_of
from bench.report import Figures
from claw_r1.datapool.batch.plan import assemble
from claw_r1.datapool.batch.selection import Selector, select
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.fold.fold import fold
from claw_r1.datapool.fold.project import changes
from claw_r1.datapool.view.planned_rows import rows_of
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.datapool.view.snapshot import ViewFile, listed_rows
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
MEMBERS, CALLS = 8, 4
JUDGED = 10
"""One group in so many has scores."""
SCORES = {"entropy@1": 0.9, "format@1": 1.0, "length@2": 0.9, "repetition@1": 1.0, "tool_calls@2": None}
Written = tuple[str, bytes, bytes | None]
Fact = GroupOpened | CallCaptured | TrajectoryCompleted | StepCurated


def measure(steps: int) -> Figures:
    """All figures of this file."""
    batches = {f"batch_256x{a + b}_ms": batch_ms(a, b) for a, b in ((1024, 512), (4096, 1024))}
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as alone:
        memory = {f"{whose}_rss_mb": alone.submit(_rss_mb, whose, steps).result() for whose in ("trainer", "view")}
    return {**view_figures(steps), **memory, **batches}


def view_figures(steps: int) -> Figures:
    """Start-up and memory of a trainer's view and of a listed one over so many steps."""
    bare, listed = PoolRows(), PoolRows(listed=True)
    figures = {f"view_{name}": value for name, value in _filled(bare, steps).items()}
    figures |= {
        f"select_{name}_cpu_s_100k": ms * 100 / figures["view_steps"]
        for name, ms in _look_ms(bare, len(bare.groups())).items()
    }
    figures |= _restarted(bare, steps, "trainer", PoolRows)
    del bare
    figures["listed_seconds_100k"] = _filled(listed, steps)["seconds_100k"]
    return {**figures, **_restarted(listed, steps, "view", listed_rows)}


def _rss_mb(whose: str, steps: int) -> float:
    """The memory of a process with such a view, which was looked at once."""
    rows = PoolRows(listed=whose == "view")
    _filled(rows, steps)
    return resident_bytes() / 1e6


def _restarted(rows: PoolRows, steps: int, whose: str, empty: Callable[[], PoolRows]) -> Figures:
    """Ends a view of so many steps, and begins it again from its file: as it was, and with a hundredth that is new."""
    with TemporaryDirectory() as directory:
        ended, begun = (ViewFile(Path(directory) / "bench.view", "bench", empty=empty) for _ in range(2))
        saved_s = seconds_of(lambda: (ended.save(rows, {}), ended.close(rows)), time.perf_counter)
        bytes_ = ended.path.stat().st_size
        again: list[PoolRows] = []
        start_s = seconds_of(lambda: again.append(begun.restored(dict)[0]), time.perf_counter)
        new = range(steps // (MEMBERS * CALLS), int(steps * 1.01) // (MEMBERS * CALLS))
        tail = [row for number in new for row in group_rows(number)]
        tail_s = seconds_of(lambda: [again[0].apply(*row) for row in tail], time.perf_counter)
        begun.close(again[0])
    return {
        f"{whose}_start_s": start_s,
        f"{whose}_start_tail_s": start_s + tail_s,
        f"{whose}_save_s": saved_s,
        f"{whose}_file_bytes_per_step": bytes_ / steps,
    }


def _filled(rows: PoolRows, steps: int) -> Figures:
    """The figures of `rows` that take in so many steps and are looked at once."""
    before, seconds = resident_bytes(), 0.0
    for number in range(steps // (MEMBERS * CALLS)):
        written = list(group_rows(number))
        seconds += seconds_of(lambda written=written: [rows.apply(*row) for row in written])
    seconds += seconds_of(rows.groups)
    held = len(rows.groups()) * MEMBERS * CALLS
    return {
        "steps": held,
        "seconds_100k": seconds * 100_000 / held,
        "bytes_per_step": (resident_bytes() - before) / held,
    }


def _look_ms(rows: PoolRows, groups: int) -> dict[str, float]:
    spec = BatchSpec(groups_per_batch=groups, group_size=MEMBERS, quality_min=0.5, quality_missing="wait")
    selector = Selector(rows, spec, RUN)
    return {
        "first": median_ms(lambda: selector.select(3, ()), 1),
        "idle": median_ms(lambda: selector.select(3, ()), 9),
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

    return median_ms(assembled, 9)


def group_rows(number: int) -> Iterator[Written]:
    """(topic, key, value) of the rows of one whole group, as a flush at its end writes them."""
    state, group_id = None, f"g{number:06d}"
    for offset, fact in enumerate(_facts(number, group_id, CALLS, 512, 128)):
        state = fold(state, fact, FactPosition(topic="claw.calls", partition=0, offset=number * 1000 + offset))
    assert state is not None  # there are facts
    for row_key, row in changes(None, state)[1].items():
        yield row_key.topic, row_key.key, row and row.value


def _facts(number: int, group_id: str, calls: int, prompt: int, response: int) -> Iterator[Fact]:
    dice = random.Random(number)
    yield GroupOpened(envelope=_envelope(f"{group_id}-o"), group_id=group_id, expected_size=MEMBERS)
    for member in range(MEMBERS):
        here = {"group_id": group_id, "trajectory_id": f"{group_id}-t{member}"}
        for turn in range(calls):
            yield _call(dice, *here.values(), turn, prompt, response)
        done = _envelope(f"{here['trajectory_id']}-done")
        yield TrajectoryCompleted(envelope=done, **here, status="completed", calls=calls, reward=member / 8)
    for member in range(MEMBERS if number % JUDGED == 0 else 0):
        here = {"group_id": group_id, "trajectory_id": f"{group_id}-t{member}"}
        for turn in range(calls):
            name, quality = f"{here['trajectory_id']}-{turn}", 0.1 if number % 1000 == 0 else 0.9
            yield StepCurated(
                envelope=_envelope(f"{name}-q"), **here, call_id=name, quality=quality, scores=SCORES, who="b"
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
