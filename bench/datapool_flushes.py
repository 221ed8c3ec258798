"""Small flushes: what a fact of one long trajectory, or of one large group, costs. `python -m bench.datapool --only flushes`.

The partition's state with its cold store, no broker, in flushes of 20 facts: the calls of one trajectory, each written
against the one before, or a call and a completion with a reward for each trajectory of one group. `us_per_fact_N` is over
the whole history of N calls or trajectories, `last_us_per_fact_N` over its last tenth; `ratio` is the former at 4,000 to
that at 200, so 1 where nothing grows. CPU times, of each flush the median; short histories are measured between parts of
the long one, so that a busy machine slows both.
"""

import gc
import random
import statistics
import time
import uuid
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from bench.episodes import call, envelope, prompt_edge, random_ids, records
from claw_r1.datapool.digests import base_digest, row_digest
from claw_r1.eventlog.records import Record
from claw_r1.schemas.events import CallCaptured, Edge, Event, TrajectoryCompleted
from claw_r1.streams.cold_store import SqliteColdStore
from claw_r1.streams.partition.state import PartitionState

FLUSH_FACTS = 20
SMALL, LARGE = 200, 4000
"""Calls, or trajectories."""
RUNS = 3
PARTS = 20
"""The parts of the long history."""
FULL_EVERY = 64
"""The distance between full prompts, equal to the gateway's."""
GROUP = "one-for-all"
Figures = dict[str, float]


def measure() -> dict[str, Figures]:
    """Figures of both."""
    return {"flushes_trajectory": _figures(_one_trajectory), "flushes_group": _figures(_one_group)}


def _figures(facts_of: Callable[[int], Iterator[Event]]) -> Figures:
    small, large = (records(list(facts_of(size))) for size in (SMALL, LARGE))
    small_s: list[list[float]] = []
    large_s: list[list[float]] = [[] for _ in range(RUNS)]
    for run in large_s:
        gc.collect()
        for number, spent_s in enumerate(_flushes(large)):
            run.append(spent_s)
            if number % (len(large) // FLUSH_FACTS // PARTS) == 0:
                small_s.append(list(_flushes(small)))
    small_flush_s, large_flush_s = ([*map(statistics.median, zip(*runs, strict=True))] for runs in (small_s, large_s))
    whole = {SMALL: _us(small_flush_s), LARGE: _us(large_flush_s)}
    last = {
        SMALL: _us(small_flush_s[-len(small_flush_s) // 10 :]),
        LARGE: _us(large_flush_s[-len(large_flush_s) // 10 :]),
    }
    return {
        **{f"us_per_fact_{size}": round(spent) for size, spent in whole.items()},
        **{f"last_us_per_fact_{size}": round(spent) for size, spent in last.items()},
        "ratio": round(whole[LARGE] / whole[SMALL], 2),
    }


def _flushes(facts: list[Record]) -> Iterator[float]:
    """CPU seconds of each."""
    state = PartitionState(0, 1, cold=SqliteColdStore())
    for start in range(0, len(facts), FLUSH_FACTS):
        began = time.process_time()
        for fact in facts[start : start + FLUSH_FACTS]:
            state.apply(fact)
        state.snapshot(0)
        yield time.process_time() - began


def _us(flushes_s: list[float]) -> float:
    """Microseconds per fact."""
    return 1e6 * sum(flushes_s) / (len(flushes_s) * FLUSH_FACTS)


def _one_trajectory(calls: int) -> Iterator[Event]:
    source = random.Random(0)
    before: CallCaptured | None = None
    for number in range(calls):
        prompt = prompt_edge(random_ids(source, 64))
        base = before if number % FULL_EVERY else None
        if base is not None:
            prompt = _upon(base, prompt)
        before = _call(_name(source), number, prompt, base, source)
        yield before


def _one_group(trajectories: int) -> Iterator[Event]:
    source = random.Random(0)
    for number in range(trajectories):
        name = _name(source)
        yield _call(name, number, prompt_edge(random_ids(source, 64)), None, source, trajectory=name)
        yield TrajectoryCompleted(
            envelope=envelope(f"{name}-x", number), group_id=GROUP, trajectory_id=name, status="completed", calls=1,
            reward=source.random(),
        )  # fmt: skip


def _upon(base: CallCaptured, more: Edge) -> Edge:
    """A prompt of all ids of the base and some more."""
    keep = base.prompt.full_length + len(base.response_ids) // 4
    digest = row_digest(base.prompt.full_digest.encode() + more.suffix)  # nobody puts it together
    return Edge(
        base_call_id=base.call_id,
        keep=keep,
        suffix=more.suffix,
        full_length=keep + more.full_length,
        full_digest=digest,
    )


def _call(
    name: str,
    number: int,
    prompt: Edge,
    base: CallCaptured | None,
    source: random.Random,
    *,
    trajectory: str = "one",
) -> CallCaptured:
    made = call(GROUP, trajectory, number, prompt, random_ids(source, 16))
    digest = ""
    if base is not None:
        digest = base_digest(
            prompt.keep, base.prompt.full_length, base.prompt.full_digest, row_digest(base.response_ids)
        )
    return replace(made, call_id=name, base_digest=digest, envelope=envelope(name, number))


def _name(source: random.Random) -> str:
    """Makes a name in the form that gateways give to calls and trajectories."""
    return str(uuid.UUID(int=source.getrandbits(128), version=4))
