"""Each task once per epoch, whoever is killed: a real runner, a real gateway, a real broker, and streams that stand still."""

import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import orjson
import pytest

from claw_r1.eventlog.errors import LogError
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.kafka.reader import commit_offsets
from claw_r1.eventlog.settings import LogSettings
from claw_r1.gateway.control.task_orders import Orders, Unfolded
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import CallCaptured, GroupOpened
from claw_r1.schemas.http import ordered_group_id
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS
from tests import children
from tests.gateway.engine import ScriptedEngine
from tests.gateway.processes import Found, GatewayProcess
from tests.patience import until
from tests.soak import SOAK

TASKS, SIZE = 7, 2


class RunnerProcess:
    """`claw agents run` on the tasks, killed or played to its end."""

    def __init__(self, url: str, folder: Path, groups_max: int | None = None) -> None:
        plan = ["--run-id", "r", "--channel", "play", "--group-size", str(SIZE), "--concurrency", "4"]
        plan += [] if groups_max is None else ["--groups-max", str(groups_max)]
        where = [
            "--flow",
            "claw_r1.claw.demo.verbs.flow:VerbsFlow",
            "--tasks",
            str(folder / "tasks.jsonl"),
            "--gateway",
            url,
        ]
        argv = [sys.executable, "-m", "claw_r1.agentflow", "run", *where, *plan]
        self.process = children.start(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.process
@pytest.mark.soak
def test_a_killed_runner_goes_on_behind_the_last_ordinal(
    log_settings: LogSettings, engine: ScriptedEngine, tmp_path: Path
) -> None:
    """After kills at random moments, of the runner and of the gateway, each ordinal was opened by one request, none is left
    out but those in flight, each group was played by one runner, and each epoch holds each task once."""
    rng, rounds = random.Random(12), SOAK or 2
    (tmp_path / "tasks.jsonl").write_bytes(
        b"".join(orjson.dumps({"observations": [f"find {n}"]}) + b"\n" for n in range(TASKS))
    )
    gateway = GatewayProcess(log_settings, tmp_path, "--upstream", engine.url)
    in_flight = 0
    try:
        for number in range(rounds):
            before = len(engine.requests)
            runner = RunnerProcess(gateway.url, tmp_path)
            until(lambda before=before: len(engine.requests) > before)
            time.sleep(rng.uniform(0, 0.5))
            if number % 3 == 1:  # both at once: the gateway has to know from the log alone
                gateway.kill()
            runner.kill()
            in_flight += 1
            if number % 3 == 1:
                gateway = GatewayProcess(log_settings, tmp_path, "--upstream", engine.url, port=gateway.port)
        last = RunnerProcess(gateway.url, tmp_path, groups_max=TASKS)
        assert last.process.wait(60) == 0
    finally:
        gateway.stop()

    events = [record.event() for record in Found.of(log_settings).records]
    openings = {event.envelope.event_id: event for event in events if isinstance(event, GroupOpened)}
    times = Counter(opening.ordinal for opening in openings.values())
    highest = max(ordinal for ordinal in times if ordinal is not None)
    assert set(times.values()) == {1}, "an ordinal was opened twice"
    assert len(set(range(highest + 1)) - times.keys()) <= in_flight
    assert highest >= TASKS, "more than an epoch, or the test shows nothing"
    tasks = {opening.ordinal: opening.task for opening in openings.values()}
    for epoch in range(highest // TASKS + 1):
        ordinals = [ordinal for ordinal in range(epoch * TASKS, (epoch + 1) * TASKS) if ordinal in tasks]
        assert len({tasks[ordinal] for ordinal in ordinals}) == len(ordinals), "a task came twice in an epoch"
    players = defaultdict(set)
    for event in events:
        if isinstance(event, CallCaptured):
            players[event.group_id].add(event.trajectory_id)
    assert max(map(len, players.values())) <= SIZE, "a group was played by two runners"
    assert {opening.group_id for opening in openings.values()} >= players.keys()


def publish(log: KafkaLog, *ordinals: int) -> None:
    producer = log.producer()
    for ordinal in ordinals:
        group_id = ordered_group_id("o", ordinal)
        event = GroupOpened(
            envelope=envelope("t"), group_id=group_id, expected_size=1, channel="train", ordinal=ordinal
        )
        producer.publish_now(CALLS, group_key(group_id), event)
    producer.close()


@pytest.mark.kafka
def test_what_streams_has_not_folded_is_read_from_the_calls(log_settings: LogSettings) -> None:
    """Behind the offsets that streams has committed, everything; before them nothing, because the pool has it, and the pool
    is looked at after these offsets were read; while the spool holds anything, there is no answer."""
    log, orders, steps, spooled = KafkaLog(log_settings), Orders(), [], []
    unfolded = Unfolded(log, orders, lambda: steps.append(orders.next_ordinal("o")), lambda: not spooled)
    publish(log, *range(9))
    unfolded.read()
    assert (orders.next_ordinal("o"), steps) == (9, [0]), "streams has folded nothing yet"

    commit_offsets(log_settings, log_settings.catalogue().streams_group, log.end_offsets([CALLS]))
    fresh = Orders()
    Unfolded(log, fresh, lambda: None, lambda: True).read()
    assert fresh.next_ordinal("o") == 0, "folded: the pool says so, not the calls"
    publish(log, 11)
    Unfolded(log, fresh, lambda: None, lambda: True).read()
    assert fresh.next_ordinal("o") == 12

    spooled.append(1)
    with pytest.raises(LogError, match="spool"):
        unfolded.read()
