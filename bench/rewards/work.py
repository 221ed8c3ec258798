"""The costs of scoring beside a bare loop: CPU seconds of this process (all threads) and, apart, of the rule's process.

Ours is the backfill's own path: membership, subjects, verdicts in transactions, rewards. Bare: the same calls read and decoded,
for `call` and `trajectory` with as many rewards produced and awaited, for `backfill` without.
"""

import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import yaml

from bench.episodes import outgoing, publish
from bench.medians import children_s, medians, seconds_of
from bench.processes import broker, topics_on
from bench.report import Figures
from bench.rewards.facts import episodes, publish_with_rows, single_calls
from claw_r1.consumers.rewards.config import load
from claw_r1.consumers.rewards.rescoring.backfill import backfill, range_of, slot_again
from claw_r1.consumers.rewards.settings import RewardsSettings
from claw_r1.consumers.rewards.subjects.of_rows import topics_of
from claw_r1.eventlog.kafka.admin import begin_offsets, end_offsets
from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.kafka.reader import read_topics
from claw_r1.eventlog.records import Outgoing
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.envelopes import decision_id, envelope
from claw_r1.schemas.events import CallCaptured, RewardAssigned
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS, REWARDS

TURNS = 8
RULE = {"use": "bench.rewards.facts:noop", "version": 1}


def ours(log: LogSettings, scope: str, generation: int) -> tuple[float, float, int]:
    """CPU seconds of this process, of the rule's, and verdicts."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "rewards.yaml"
        config.write_text(yaml.safe_dump({"scorers": {"bench/slot": {**RULE, "scope": scope}}}))
        slot = slot_again(load(config)[0], generation)
        topics = topics_of(slot.scorer.scope)
        span = range_of(log, slot, begin_offsets(log, topics), end_offsets(log, topics))
        began_s, rule_began_s = time.process_time(), children_s()
        outcome = backfill(log, slot, RewardsSettings(), span, stop=threading.Event())
        spent_s = time.process_time() - began_s
    assert outcome.left == 0
    return spent_s, children_s() - rule_began_s, outcome.judged


def bare(log: LogSettings, rewarded: Callable[[CallCaptured], bool]) -> float:
    """CPU seconds of a loop that decodes all calls, and produces a reward where `rewarded`."""

    def work() -> None:
        futures = []
        with closing(EventProducer(log)) as producer:
            for record in read_topics(log, [CALLS]):
                call = record.event()
                if isinstance(call, CallCaptured) and rewarded(call):
                    futures.append(producer.produce(_reward(call)))
            for future in futures:
                future.result()

    return seconds_of(work)


def _reward(call: CallCaptured) -> Outgoing:
    reward = RewardAssigned(
        envelope=envelope("bench", event_id=decision_id("reward", call.call_id)),
        group_id=call.group_id,
        trajectory_id=call.trajectory_id,
        call_id=call.call_id,
        source="bench",
        name="bare",
        value=0.5,
    )
    return Outgoing.of(REWARDS, group_key(call.group_id), reward)


def measure(calls: int, repeats: int) -> Figures:
    """`call_ratio`, `backfill_ratio`, `trajectory_ratio`, `rule_cpu_ms`: medians of interleaved repeats."""
    trajectories = max(20, calls // TURNS // 4)
    with broker() as found:
        flat, deep = topics_on(found.bootstrap), topics_on(found.bootstrap)
        publish(flat, map(outgoing, single_calls(calls)))
        publish_with_rows(deep, episodes(trajectories, TURNS))
        rounds = [one_round(flat, deep, generation=number + 1) for number in range(repeats)]
    return {**medians(rounds), "work_calls": calls, "work_trajectories": trajectories}


def one_round(flat: LogSettings, deep: LogSettings, *, generation: int) -> dict[str, Any]:
    """Each once, ours and bare next to each other."""
    bare_call_s = bare(flat, lambda _: True)
    call_s, rule_s, verdicts = ours(flat, "call", generation)
    decode_s = bare(flat, lambda _: False)
    bare_trajectory_s = bare(deep, lambda call: call.call_id.endswith(f"-{TURNS - 1}"))
    deep_s, _, _ = ours(deep, "trajectory", generation)
    return {
        "call_ratio": call_s / bare_call_s,
        "backfill_ratio": call_s / decode_s,
        "trajectory_ratio": deep_s / bare_trajectory_s,
        "rule_cpu_ms": 1000 * call_s / verdicts,
        "rule_process_cpu_ms": 1000 * rule_s / verdicts,
        "bare_call_cpu_ms": 1000 * bare_call_s / verdicts,
        "bare_decode_cpu_ms": 1000 * decode_s / verdicts,
    }
