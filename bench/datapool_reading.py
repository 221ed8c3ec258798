"""The costs of reading the whole pool: `python -m bench.datapool_reading [STEPS]` prints one JSON object.

Rows as the streams write them (steps of 512 + 128 tokens) stand on a broker, the one that is named or runs, else the kept
one. `read_COMMAND_cpu_s`: CPU seconds of a `claw pool` command, a process of its own with all its threads and its start;
`again_COMMAND_cpu_s`: where one before it kept its view. `other_runs_ratio`: CPU of a run's view of a pool of ten runs, by that of one in which it
is alone.
`takeover_s`, `takeover_cpu_s`: of this process while a streams worker's state is read back for all partitions;
`takeover_standby_s`: where it held copies of them; `takeover_file_s`: from files of a worker that was killed.
"""

import json
import os
import resource
import subprocess
import sys
import time
import uuid
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.datapool_view import MEMBERS, Written, group_rows
from bench.episodes import publish
from claw_r1.claw.local.broker import resolve_broker
from claw_r1.datapool.view.view import PoolView
from claw_r1.eventlog.kafka.admin import create_topics
from claw_r1.eventlog.partitioner import partition_of
from claw_r1.eventlog.records import Outgoing
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.cloudevents import of_run
from claw_r1.schemas.keys import parts
from claw_r1.schemas.topics import GROUPS, STEPS, TRAJECTORIES
from claw_r1.streams.recovery import pool_copies, recover
from claw_r1.streams.standby import Standby

PARTITIONS = 8
CALLS = 4
OWN, RUNS = "own", 10
CAUGHT_UP_S = 600.0
TOPICS = {topic.name: topic for topic in (STEPS, TRAJECTORIES, GROUPS)}
COMMANDS = {
    "stats": ["stats"],
    "steps": ["steps", "--limit", "20"],
    "groups": ["groups", "--limit", "20"],
    "stats_of_group": ["stats", "--group", "g000000"],
    "why": ["why", "g000000-t3-1"],
}


def measure(steps: int = 20_000) -> dict[str, float]:
    """Figures of one pool of so many steps."""
    with resolve_broker() as broker:
        settings = LogSettings(
            bootstrap_servers=broker.bootstrap, prefix=f"bench{uuid.uuid4().hex[:8]}", partitions=PARTITIONS
        )
        create_topics(settings)
        groups = steps // (MEMBERS * CALLS)
        rows = (row for number in range(groups) for row in group_rows(number, CALLS, 512, 128))
        publish(settings, map(_outgoing, rows))
        figures: dict[str, float] = {}
        with TemporaryDirectory() as kept:
            for name, words in COMMANDS.items():
                with TemporaryDirectory() as empty:
                    figures[f"read_{name}_cpu_s"] = command_cpu_s(settings, words, empty)
            command_cpu_s(settings, COMMANDS["stats"], kept)
            for name, words in COMMANDS.items():
                figures[f"again_{name}_cpu_s"] = command_cpu_s(settings, words, kept)
        figures |= _takeovers(settings)
        figures["other_runs_ratio"] = other_runs_ratio(settings, groups)
    return {"read_steps": groups * MEMBERS * CALLS, **figures}


def _takeovers(settings: LogSettings) -> dict[str, float]:
    numbers, standby = range(PARTITIONS), Standby(settings)
    began, began_cpu = time.perf_counter(), time.process_time()
    recover(settings, numbers)
    cold = {
        "takeover_s": round(time.perf_counter() - began, 2),
        "takeover_cpu_s": round(time.process_time() - began_cpu, 2),
    }
    standby.hold(numbers)
    standby.wait_caught_up(CAUGHT_UP_S)
    began = time.perf_counter()
    recover(settings, numbers, standby.take(numbers))
    cold["takeover_standby_s"] = round(time.perf_counter() - began, 2)
    with TemporaryDirectory() as folder:
        kept = settings.model_copy(update={"views_dir": Path(folder)})
        for copy in pool_copies(kept, numbers, {}).values():
            copy.close()
        for ended_in_order in Path(folder).glob("*.sum"):
            ended_in_order.unlink()
        began = time.perf_counter()
        recover(kept, numbers)
        return {**cold, "takeover_file_s": round(time.perf_counter() - began, 2)}


def _outgoing(row: Written, run: str = OWN) -> Outgoing:
    topic, key, value = row
    group, headers = key if topic == GROUPS.name else parts(key)[0].encode(), of_run(run)
    return Outgoing(
        topic=TOPICS[topic], key=key, value=value, headers=headers, partition=partition_of(group, PARTITIONS)
    )


def other_runs_ratio(settings: LogSettings, groups: int) -> float:
    """CPU of a run's view of a pool of ten runs, by that of a pool in which it is alone."""
    alone, crowded = (
        settings.model_copy(update={"prefix": f"{settings.prefix}{name}"}) for name in ("alone", "crowded")
    )
    for each, runs in ((alone, 1), (crowded, RUNS)):
        create_topics(each)
        numbers = ((number, run) for number in range(groups // RUNS) for run in range(runs))
        publish(
            each,
            (
                _outgoing(row, str(run) if run else OWN)
                for number, run in numbers
                for row in group_rows(number * RUNS + run, CALLS, 512, 128)
            ),
        )
    return round(_view_cpu_s(crowded) / _view_cpu_s(alone), 2)


def _view_cpu_s(settings: LogSettings) -> float:
    began = time.process_time()
    view = PoolView(settings, run=OWN)
    view.start()
    view.wait_caught_up(CAUGHT_UP_S)
    view.groups()
    view.stop()
    return time.process_time() - began


def command_cpu_s(settings: LogSettings, words: list[str], views_dir: str) -> float:
    """CPU seconds of a command that must answer."""
    before = _children_s()
    command = [sys.executable, "-m", "claw_r1.claw", "pool", *words, "--prefix", settings.prefix, "--json"]
    done = subprocess.run(
        command,
        env={**os.environ, "KAFKA_BOOTSTRAP_SERVERS": settings.bootstrap_servers, "CLAW_LOG_VIEWS_DIR": views_dir},
        capture_output=True,
        check=False,
    )
    if not done.stdout:
        raise RuntimeError(done.stderr.decode()[-2000:])
    return round(_children_s() - before, 2)


def _children_s() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


if __name__ == "__main__":
    print(json.dumps(measure(*(int(word) for word in sys.argv[1:2])), indent=1))
