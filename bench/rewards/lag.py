"""A scorer under load: from a call's acknowledgement to when its reward can be read."""

import contextlib
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path

import yaml

from bench.episodes import outgoing, publish
from bench.medians import percentile
from bench.processes import environment_of, new_log, running, wait_until
from bench.report import Figures
from bench.rewards.facts import single_calls
from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.kafka.reader import LogReader
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.events import RewardAssigned
from claw_r1.schemas.topics import REWARDS

RATE = 200
WARM_CALLS = 200
SLOT = {"use": "bench.rewards.facts:noop", "version": 1, "scope": "call"}


class Arrivals(threading.Thread):
    """The times when the reward of each call could be read: a moment after it was acknowledged."""

    def __init__(self, log: LogSettings, count: int) -> None:
        super().__init__(daemon=True)
        self.at_s: dict[str, float] = {}
        self._log, self._count = log, count
        self.halt, self.ready = threading.Event(), threading.Event()

    def run(self) -> None:
        with LogReader(self._log, [REWARDS], start="end") as reader:
            self.ready.set()
            while len(self.at_s) < self._count and not self.halt.is_set():
                for record in reader.poll(0.05):
                    event, now_s = record.event(), time.monotonic()
                    if isinstance(event, RewardAssigned) and event.call_id is not None:
                        self.at_s.setdefault(event.call_id, now_s)


def measure(seconds: int) -> Figures:
    """`lag_ms_p50`, `lag_ms_p99`, at `RATE` calls per second."""
    count = seconds * RATE
    acknowledged: dict[str, float] = {}
    with new_log() as log, tempfile.TemporaryDirectory() as name:
        config = Path(name) / "rewards.yaml"
        config.write_text(yaml.safe_dump({"scorers": {"bench/slot": SLOT}}))
        arrivals = Arrivals(log, count + WARM_CALLS)
        arrivals.start()
        arrivals.ready.wait()
        where, said = {**environment_of(log), "CLAW_REWARDS_CONFIG": str(config)}, Path(name) / "scorer.log"
        scorer = running("claw_r1.consumers.rewards", ready="log_partitions_assigned", log=said, **where)
        with scorer, closing(EventProducer(log)) as producer:
            publish(log, map(outgoing, single_calls(WARM_CALLS, "warm")))
            wait_until(lambda: len(arrivals.at_s) == WARM_CALLS)
            calls, begin_s = list(single_calls(count, "lag")), time.monotonic()
            for number, call in enumerate(calls):
                time.sleep(max(0.0, begin_s + number / RATE - time.monotonic()))
                future = producer.produce(outgoing(call))
                future.add_done_callback(lambda _, name=call.call_id: acknowledged.setdefault(name, time.monotonic()))
            with contextlib.suppress(TimeoutError):
                wait_until(lambda: len(arrivals.at_s) == count + WARM_CALLS)
        arrivals.halt.set()
    lags = [1000 * (arrivals.at_s[name] - at) for name, at in acknowledged.items() if name in arrivals.at_s]
    return {
        "lag_ms_p50": percentile(lags, 50),
        "lag_ms_p99": percentile(lags, 99),
        "lag_calls": len(lags),
        "lag_missing": count - len(lags),
    }
