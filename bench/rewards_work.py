"""The costs of scoring beside a bare loop: CPU seconds of this process (all threads) and, apart, of the rule's process.

Ours is the backfill's own path: membership, subjects, verdicts in transactions, rewards. Bare: the same calls read and decoded,
for `call` and `trajectory` with as many rewards produced and awaited, for `backfill` without.
"""

import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import yaml

from bench.rewards_facts import episodes, new_log, publish, publish_with_rows, single_calls
from bench.rewards_judge import scripted_judge
from claw_r1.consumers.rewards.config import ScoredSlot, load
from claw_r1.consumers.rewards.kinds import Kind
from claw_r1.consumers.rewards.opinions import RewardScorer
from claw_r1.consumers.rewards.rescoring.backfill import backfill, range_of, slot_again
from claw_r1.consumers.rewards.settings import RewardsSettings
from claw_r1.consumers.rewards.subjects.of_rows import topics_of
from claw_r1.eventlog.kafka.admin import begin_offsets, end_offsets
from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.kafka.reader import read_topics
from claw_r1.eventlog.records import Outgoing, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.envelopes import decision_id, envelope
from claw_r1.schemas.events import CallCaptured, RewardAssigned
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS, REWARDS

TURNS = 8
RULE = {"use": "bench.rewards_facts:noop", "version": 1}
Figures = dict[str, Any]  # numbers


def slot_of(fields: dict[str, Any], folder: Path) -> ScoredSlot:
    """A slot of a file of its own."""
    path = folder / "rewards.yaml"
    path.write_text(yaml.safe_dump({"scorers": {"bench/slot": fields}}))
    return load(path)[0]


class MeasuredScorer:
    """A scorer whose processes' CPU is read before they go."""

    def __init__(self, scorer: RewardScorer) -> None:
        self._scorer = scorer
        self._began_s = worker_cpu_s()
        self.judge = scorer.judge
        self.cpu_s = 0.0

    def close(self) -> None:
        """Twice is once."""
        self.cpu_s = self.cpu_s or worker_cpu_s() - self._began_s
        self._scorer.close()


def worker_cpu_s() -> float:
    """Returns the CPU seconds of the processes that run rules."""
    spent_s = 0.0
    for child in psutil.Process().children(recursive=True):
        if "claw_r1.consumers.rewards.functions.worker" in child.cmdline():
            times = child.cpu_times()
            spent_s += times.user + times.system
    return spent_s


def ours(settings: LogSettings, slot: ScoredSlot, generation: int) -> tuple[float, float, int]:
    """CPU seconds of this process, of the rule's, and verdicts."""
    measured: list[MeasuredScorer] = []

    def open_measured(scorer: Any) -> MeasuredScorer:  # settings of any kind
        measured.append(MeasuredScorer(slot.kind.open(scorer)))
        return measured[-1]

    again = replace(slot_again(slot, generation), kind=Kind(slot.kind.settings, open_measured))
    topics = topics_of(slot.scorer.scope)
    span = range_of(settings, again, begin_offsets(settings, topics), end_offsets(settings, topics))
    began_s = time.process_time()
    outcome = backfill(settings, again, RewardsSettings(), span, stop=threading.Event())
    spent_s = time.process_time() - began_s
    assert outcome.left == 0
    return spent_s, measured[0].cpu_s, outcome.judged


def calls_in(settings: LogSettings) -> Iterator[tuple[Record, CallCaptured]]:
    """All, decoded."""
    for record in read_topics(settings, [CALLS]):
        event = record.event()
        if isinstance(event, CallCaptured):
            yield record, event


def bare(settings: LogSettings, rewarded: Callable[[CallCaptured], bool]) -> float:
    """CPU seconds of a loop that decodes all calls, and produces a reward where `rewarded`."""
    began_s = time.process_time()
    futures = []
    with closing(EventProducer(settings)) as producer:
        for _, call in calls_in(settings):
            if rewarded(call):
                reward = RewardAssigned(
                    envelope=envelope("bench", event_id=decision_id("reward", call.call_id)),
                    group_id=call.group_id,
                    trajectory_id=call.trajectory_id,
                    call_id=call.call_id,
                    source="bench",
                    name="bare",
                    value=0.5,
                )
                futures.append(producer.produce(Outgoing.of(REWARDS, group_key(call.group_id), reward)))
        for future in futures:
            future.result()
    return time.process_time() - began_s


def measure(bootstrap: str, calls: int, repeats: int) -> Figures:
    """`call_ratio`, `backfill_ratio`, `trajectory_ratio`, `rule_cpu_ms`, `judge_cpu_ms`: medians of interleaved repeats."""
    with tempfile.TemporaryDirectory() as name, scripted_judge() as url:
        folder = Path(name)
        flat, deep = new_log(bootstrap), new_log(bootstrap)
        trajectories = max(20, calls // TURNS // 4)
        publish(flat, single_calls(calls))
        publish_with_rows(deep, episodes(trajectories, TURNS))
        few = new_log(bootstrap)
        publish(few, single_calls(max(100, calls // 10), "few"))
        rounds = [one_round(folder, url, flat, deep, few, generation=number + 1) for number in range(repeats)]
    medians = {key: round(statistics.median(each[key] for each in rounds), 3) for key in rounds[0]}
    return {**medians, "work_calls": calls, "work_trajectories": trajectories}


def one_round(
    folder: Path, url: str, flat: LogSettings, deep: LogSettings, few: LogSettings, *, generation: int
) -> Figures:
    """Each once, ours and bare next to each other."""
    rule = {**RULE, "scope": "call"}
    (folder / "rubric.md").write_text("---\nanswer: number\nscale: [0, 1]\n---\nHow good is the reply?\n")
    judge = {"use": "judge", "version": 1, "scope": "call", "rubric": "rubric.md", "model": "bench", "url": url}
    bare_call_s = bare(flat, lambda _: True)
    call_s, call_rule_s, verdicts = ours(flat, slot_of(rule, folder), generation)
    decode_s = bare(flat, lambda _: False)
    bare_trajectory_s = bare(deep, lambda call: call.call_id.endswith(f"-{TURNS - 1}"))
    deep_s, deep_rule_s, _ = ours(deep, slot_of({**RULE, "scope": "trajectory"}, folder), generation)
    judge_s, _, judged = ours(few, slot_of(judge, folder), generation)
    return {
        "call_ratio": call_s / bare_call_s,
        "call_ratio_with_rule_process": (call_s + call_rule_s) / bare_call_s,
        "backfill_ratio": call_s / decode_s,
        "backfill_ratio_with_rule_process": (call_s + call_rule_s) / decode_s,
        "trajectory_ratio": deep_s / bare_trajectory_s,
        "trajectory_ratio_with_rule_process": (deep_s + deep_rule_s) / bare_trajectory_s,
        "rule_cpu_ms": 1000 * call_s / verdicts,
        "rule_process_cpu_ms": 1000 * call_rule_s / verdicts,
        "judge_cpu_ms": 1000 * judge_s / judged,
        "bare_call_cpu_ms": 1000 * bare_call_s / verdicts,
        "bare_decode_cpu_ms": 1000 * decode_s / verdicts,
    }


def profile(bootstrap: str, calls: int, scope: str = "call") -> None:
    """Profiles where the time of ours goes, by cProfile: the main thread's, which is the slot's."""
    import cProfile
    import pstats

    settings = new_log(bootstrap)
    if scope == "call":
        publish(settings, single_calls(calls))
    else:
        publish_with_rows(settings, episodes(calls // TURNS, TURNS))
    with tempfile.TemporaryDirectory() as name, cProfile.Profile() as profiled:
        ours(settings, slot_of({**RULE, "scope": scope}, Path(name)), 1)
    pstats.Stats(profiled).sort_stats("tottime").print_stats(30)
