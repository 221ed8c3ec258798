"""Processes of `claw rewards run` under load: how late rewards come, and what more processes bring."""

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import yaml

from bench.rewards_facts import PARTITIONS, new_log, publish, single_calls
from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.kafka.reader import LogReader
from claw_r1.eventlog.records import Outgoing
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.events import RewardAssigned
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS, REWARDS

RATE = 200
WARM_CALLS = 200
READY = "log_partitions_assigned"
WAIT_S = 180.0
Figures = dict[str, Any]  # numbers


class Scorers:
    """Processes of one slot of scope call."""

    def __init__(self, settings: LogSettings, folder: Path, rule: str, **fields: Any) -> None:
        self.settings, self._folder = settings, folder
        self._config = folder / "rewards.yaml"
        slot = {"use": f"bench.rewards_facts:{rule}", "version": 1, "scope": "call", **fields}
        self._config.write_text(yaml.safe_dump({"scorers": {"bench/slot": slot}}))
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> "subprocess.Popen[bytes]":
        """One more, in a process group of its own."""
        env = {
            **os.environ,
            "KAFKA_BOOTSTRAP_SERVERS": self.settings.bootstrap_servers,
            "CLAW_LOG_PREFIX": self.settings.prefix,
            "CLAW_LOG_PARTITIONS": str(PARTITIONS),
            "CLAW_REWARDS_CONFIG": str(self._config),
        }
        with self.log(len(self.processes)).open("wb") as output:
            command = [sys.executable, "-m", "claw_r1.consumers.rewards"]
            process = subprocess.Popen(command, env=env, stdout=output, stderr=output, start_new_session=True)
        self.processes.append(process)
        return process

    def log(self, number: int) -> Path:
        """Returns the log file of a process."""
        return self._folder / f"scorer-{number}.log"

    def wait_assigned(self, count: int) -> None:
        """Until `count` processes share the partitions."""
        share = f'"partitions": {PARTITIONS // count}, "event": "{READY}"'
        until(lambda: all(share in self.log(number).read_text() for number in range(count)))

    def end(self) -> None:
        """All of them."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(15)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextlib.contextmanager
def scorers(settings: LogSettings, rule: str, **fields: Any) -> Iterator[Scorers]:
    """Nothing of it outlives the block."""
    with tempfile.TemporaryDirectory() as name:
        fleet = Scorers(settings, Path(name), rule, **fields)
        try:
            yield fleet
        finally:
            fleet.end()


def until(condition: Any) -> None:
    """Raises TimeoutError."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("it never came to that")
        time.sleep(0.05)


class Arrivals(threading.Thread):
    """The times when the reward of each call could be read: a moment after it was acknowledged."""

    def __init__(self, settings: LogSettings, count: int) -> None:
        super().__init__(daemon=True)
        self.at_s: dict[str, float] = {}
        self._settings, self._count = settings, count
        self.halt = threading.Event()
        self.ready = threading.Event()

    def run(self) -> None:
        with LogReader(self._settings, [REWARDS], start="end") as reader:
            self.ready.set()
            while len(self.at_s) < self._count and not self.halt.is_set():
                for record in reader.poll(0.05):
                    event, now_s = record.event(), time.monotonic()
                    if isinstance(event, RewardAssigned) and event.call_id is not None:
                        self.at_s.setdefault(event.call_id, now_s)


def lag(bootstrap: str, seconds: float) -> Figures:
    """`lag_ms_p50`, `lag_ms_p99`: a call acknowledged to its reward read, at RATE calls per second."""
    settings = new_log(bootstrap)
    count = int(seconds * RATE)
    calls = list(single_calls(count, "lag"))
    arrivals = Arrivals(settings, count + WARM_CALLS)
    arrivals.start()
    arrivals.ready.wait()
    acknowledged: dict[str, float] = {}
    with scorers(settings, "noop") as fleet, closing(EventProducer(settings)) as producer:
        fleet.start()
        fleet.wait_assigned(1)
        publish(settings, single_calls(WARM_CALLS, "warm"))
        time.sleep(3)
        begin_s = time.monotonic()
        for number, call in enumerate(calls):
            time.sleep(max(0.0, begin_s + number / RATE - time.monotonic()))
            future = producer.produce(Outgoing.of(CALLS, group_key(call.group_id), call))
            future.add_done_callback(lambda _, name=call.call_id: acknowledged.setdefault(name, time.monotonic()))
        with contextlib.suppress(TimeoutError):
            until(lambda: calls_done(arrivals, acknowledged, count))
    arrivals.halt.set()
    lags = sorted(1000 * (arrivals.at_s[name] - at) for name, at in acknowledged.items() if name in arrivals.at_s)
    cuts = statistics.quantiles(lags, n=100)
    return {
        "lag_ms_p50": round(cuts[49], 1),
        "lag_ms_p99": round(cuts[98], 1),
        "lag_calls": len(lags),
        "lag_missing": count - len(lags),
    }


def calls_done(arrivals: Arrivals, acknowledged: dict[str, float], count: int) -> bool:
    """Returns whether every call has its reward."""
    return len(acknowledged) >= count and all(name in arrivals.at_s for name in list(acknowledged))


def fleet(bootstrap: str, seconds: float) -> Figures:
    """`fleet_ratio_4`: verdicts per second of four processes by those of one, with a rule that waits 50 ms."""
    one, four = throughput(bootstrap, 1, seconds), throughput(bootstrap, 4, seconds)
    return {
        "fleet_verdicts_s_1": round(one, 2),
        "fleet_verdicts_s_4": round(four, 2),
        "fleet_ratio_4": round(four / one, 3),
    }


def throughput(bootstrap: str, count: int, seconds: float) -> float:
    """Verdicts per second from the first call to the last reward."""
    settings = new_log(bootstrap)
    calls = int(seconds * 20 * count) // PARTITIONS * PARTITIONS
    arrivals = Arrivals(settings, calls + PARTITIONS)
    arrivals.start()
    arrivals.ready.wait()
    with scorers(settings, "waits") as running:
        for _ in range(count):
            running.start()
        running.wait_assigned(count)
        publish(settings, single_calls(PARTITIONS, "warm"))  # partitions are owned, rules are loaded
        until(lambda: len(arrivals.at_s) == PARTITIONS)
        begin_s = time.monotonic()
        publish(settings, single_calls(calls, "fleet"))
        until(lambda: len(arrivals.at_s) == calls + PARTITIONS)
    arrivals.halt.set()
    return calls / (max(arrivals.at_s.values()) - begin_s)
