"""One group of so many trajectories: what a fact, a flush of 4,000 facts and a takeover cost. `python -m bench.datapool_crowd 20000`.

The partition's state alone, no broker: a failed call and a completion for each trajectory, one group id for all of them.
"""

import json
import sys
import time
from collections.abc import Iterator

from claw_r1.eventlog.records import Outgoing, Record
from claw_r1.schemas.codec import encode
from claw_r1.schemas.events import CallFailed, Envelope, Timings, TrajectoryCompleted
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import GROUPS, POSITIONS, STEPS, TRAJECTORIES
from claw_r1.streams.cold_store import SqliteColdStore
from claw_r1.streams.partition.groups import ColdRow
from claw_r1.streams.partition.state import PartitionState
from claw_r1.streams.recovery import state_of

GROUP = "one-for-all"
FLUSH_FACTS = 4000
POOL = (STEPS, TRAJECTORIES, GROUPS, POSITIONS)
Rows = dict[tuple[str, bytes], Outgoing]


def measure(trajectories: int) -> dict[str, float]:
    """CPU times."""
    rows: Rows = {}
    folding_s, flushes_s = _written(rows, list(_facts(trajectories)))
    largest = max(len(row.value or b"") for row in rows.values())
    return {
        "fold_us_per_fact": round(1e6 * folding_s / 2 / trajectories),
        "flush_s_mean": round(sum(flushes_s) / len(flushes_s), 2),
        "flush_s_max": round(max(flushes_s), 2),
        "takeover_s": round(_taken_over(rows, trajectories), 1),
        "largest_row_bytes": largest,
    }


def _written(rows: Rows, facts: list[Record]) -> tuple[float, list[float]]:
    state, folding_s, flushes_s = PartitionState(0, 1, cold=SqliteColdStore()), 0.0, []
    for start in range(0, len(facts), FLUSH_FACTS):
        began = time.process_time()
        for fact in facts[start : start + FLUSH_FACTS]:
            state.apply(fact)
        folded = time.process_time()
        batch = state.snapshot(0)
        flushes_s.append(time.process_time() - folded)
        folding_s += folded - began
        rows |= {(row.topic.name, row.key or b""): row for row in batch if row.topic in POOL}
    return folding_s, flushes_s


def _taken_over(rows: Rows, trajectories: int) -> float:
    """From the first fact that a new owner folds to its flush."""
    cold = SqliteColdStore()
    group = group_key(GROUP)
    cold.write(
        ColdRow(topic, key, group, row.value, 0 if topic == GROUPS.name else None) for (topic, key), row in rows.items()
    )
    state = state_of(0, 1, cold)
    (late, _) = _facts_of(trajectories, 2 * trajectories)
    began = time.process_time()
    state.apply(late)
    state.snapshot(0)
    return time.process_time() - began


def _facts(trajectories: int) -> Iterator[Record]:
    for number in range(trajectories):
        yield from _facts_of(number, 2 * number)


def _facts_of(number: int, offset: int) -> tuple[Record, Record]:
    name = f"00000000-0000-0000-0000-{number:012}"
    failed = CallFailed(
        envelope=_envelope(offset),
        group_id=GROUP,
        trajectory_id=name,
        call_id="c",
        http_status=500,
        reason="upstream_broken",
        timings=Timings(received_us=0, dispatched_us=0, done_us=0),
    )
    completed = TrajectoryCompleted(
        envelope=_envelope(offset + 1), group_id=GROUP, trajectory_id=name, status="completed", reward=1.0
    )
    return _record(failed, offset), _record(completed, offset + 1)


def _envelope(number: int) -> Envelope:
    return Envelope(event_id=f"e{number:09}", occurred_at_us=number, producer="bench", run_id="bench")


def _record(event: CallFailed | TrajectoryCompleted, offset: int) -> Record:
    return Record("claw.calls", 0, offset, 0, group_key(GROUP), encode(event))


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000), indent=1))
