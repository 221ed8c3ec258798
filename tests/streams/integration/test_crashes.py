"""The Faust shell under fire. The invariant each time: the pool is what the oracle makes of the facts, byte for byte; no
record is missing; every partition moves on; nothing is a dead letter that is not poison.

Each trouble comes once in `make test`, and N times in `make soak N=100`.
"""

import random
import re
import signal
import time
import urllib.request
from collections import Counter
from functools import partial

import pytest
from confluent_kafka import Consumer, TopicPartition

from claw_r1.claw.local.ports import free_ports
from claw_r1.eventlog.kafka.admin import end_offsets
from claw_r1.schemas.events import TrajectoryRecord
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS, REWARDS
from claw_r1.streams.errors import ExitCode
from claw_r1.streams.ownership import group_name
from tests import facts, oracle
from tests.patience import PATIENCE_S
from tests.soak import in_soak
from tests.streams import pool
from tests.streams.pool import ROUNDS, whole

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.soak]

HOUR_US = 3_600_000_000
PATIENT_MS = 60_000
"""How long a fact may wait for a broker that is being restarted."""


def taken_up(worker):
    pool.wait_for("its share", lambda: worker.said("streams_assigned"))


@pytest.mark.timeout(60 + 60 * ROUNDS)
@pytest.mark.parametrize("has_files", [True, in_soak(False)])
def test_killed_at_random_points_under_load(log_settings, start, tmp_path, has_files):
    """kill -9 loses nothing and says nothing twice: the successor reads state and position from the log, or from a file and the rest
    of the log. What is in the files in the end is the pool."""
    dice, files = (
        random.Random(1),
        {"CLAW_LOG_VIEWS_DIR": str(tmp_path / "views"), "CLAW_STREAMS_KEEP_INTERVAL_S": "0.1"},
    )
    start = partial(start, **files) if has_files else start
    traffic, letters = pool.Traffic(log_settings), Counter()
    for _ in range(ROUNDS):
        worker = start()
        taken_up(worker)
        pool.wait_for_more(log_settings)
        time.sleep(dice.uniform(0, 0.5))
        letters += pool.poisoned(log_settings, f"poison{dice.randrange(99)}")
        assert traffic.flowing
        worker.signal(signal.SIGKILL)
        worker.wait()
    last = start()
    traffic.done()
    whole(log_settings, letters=letters)
    if has_files:
        assert last.stop() == ExitCode.STOPPED
        assert "begun_again" not in last.log()
        read = last.said("streams_pool_read")[0]["rows"]
        assert read < pool.same_from_files(log_settings, tmp_path / "views")


@pytest.mark.timeout(60 + 60 * ROUNDS)
def test_workers_that_come_and_go_under_load(log_settings, start):
    """Each rebalance moves partitions between a worker that stays and one that does not."""
    stays = start(CLAW_STREAMS_STANDBY="1")
    taken_up(stays)
    traffic = pool.Traffic(log_settings)
    for _ in range(ROUNDS):
        pool.wait_for_more(log_settings)
        guest = start(CLAW_STREAMS_STANDBY="1")
        taken_up(guest)
        assert traffic.flowing
        assert guest.stop() == ExitCode.STOPPED, guest.log()
    traffic.done()
    whole(log_settings)
    assert stays.running, stays.log()


@pytest.mark.timeout(60 + 20 * ROUNDS)
def test_poison_amid_traffic_is_set_aside_and_its_partition_goes_on(log_settings, start):
    """One dead letter per poison record of every kind, with its reason; everything around it is folded."""
    start()
    traffic, letters = pool.Traffic(log_settings), Counter()
    for number in range(ROUNDS):
        pool.wait_for_more(log_settings)
        letters += pool.poisoned(log_settings, f"traffic{number}-0")
        assert traffic.flowing
    traffic.done()
    whole(log_settings, letters=letters)


@pytest.mark.timeout(60 + 30 * ROUNDS)
def test_what_the_group_acknowledged_without_folding_is_folded_at_takeover(log_settings, start):
    """Group offsets beyond our position are a gap that Faust made; no new event is needed to notice it."""
    letters = Counter()
    for number in range(ROUNDS):
        pool.publish(log_settings, map(pool.outgoing, pool.load(groups=3, prefix=f"gap{number}-")))
        letters += pool.poisoned(log_settings, f"gap{number}-0")
        acknowledged_by_the_group(log_settings)
        worker = start()
        whole(log_settings, letters=letters)
        assert worker.said("streams_healed")
        assert worker.stop() == ExitCode.STOPPED, worker.log()


def acknowledged_by_the_group(settings):
    """Everything, while nobody is in the group."""
    group = Consumer({"bootstrap.servers": settings.bootstrap_servers, "group.id": group_name(settings.catalogue())})
    ends = end_offsets(settings, [CALLS, REWARDS])
    group.commit(offsets=[TopicPartition(*place, end) for place, end in ends.items()], asynchronous=False)
    group.close()


@pytest.mark.timeout(60 + 20 * ROUNDS)
def test_facts_that_were_never_delivered_are_folded_when_the_next_one_comes(log_settings, start):
    """A gap in the stream itself is read from the log, poison in it included, before the event behind it is folded."""
    worker = start(module="tests.streams.hampered")
    taken_up(worker)
    dice, lost, letters = random.Random(2), 0, Counter()
    for number in range(ROUNDS):
        gone = pool.load(groups=4, members=2, prefix=f"lost{number}-")
        lost += len(gone)
        events = [*gone, *pool.load(groups=4, members=2, prefix=f"kept{number}-")]
        pool.publish(log_settings, map(pool.outgoing, dice.sample(events, len(events))))
        letters += pool.poisoned(log_settings, f"lost{number}-0")
        pool.publish(log_settings, map(pool.outgoing, pool.load(groups=6, members=1, prefix=f"behind{number}-")))
        whole(log_settings, letters=letters)
    assert sum(one["records"] for one in worker.said("streams_healed")) == lost + letters.total()
    assert worker.running


def taken_over(settings, start, name, **env):
    """A successor that owns everything and has written facts of its own."""
    successor = start(CLAW_STREAMS_STANDBY="1", **env)
    taken_up(successor)
    flushed(settings, name)
    return successor


def flushed(settings, name):
    """New facts, in the log and in the pool."""
    pool.publish(settings, map(pool.outgoing, pool.load(groups=5, prefix=name)))
    ends = end_offsets(settings, [CALLS, REWARDS])
    pool.wait_for("everything folded", lambda: pool.folded_up_to(settings, ends))


@pytest.mark.timeout(120 + 60 * ROUNDS)
def test_a_stopped_owner_that_wakes_up_cannot_overwrite_its_successor(log_settings, start):
    """SIGSTOP past the session with facts in hand, SIGCONT after another wrote: the old owner is fenced and leaves."""
    ports = free_ports(2)
    patient = {"CLAW_STREAMS_FLUSH_WAITING_S": "5"}
    owner = start(**patient, CLAW_STREAMS_METRICS_PORT=str(ports[-1]))
    for number in range(ROUNDS):
        flushed(log_settings, f"before{number}-")
        stopped_with_facts_in_hand(log_settings, owner, ports[number % 2 - 1], f"in-hand{number}-")
        port = str(ports[number % 2])
        successor = taken_over(log_settings, start, f"after{number}-", **patient, CLAW_STREAMS_METRICS_PORT=port)
        owner.signal(signal.SIGCONT)
        assert owner.wait(PATIENCE_S) == ExitCode.FENCED, owner.log()
        owner = successor
    whole(log_settings)
    assert owner.running


def stopped_with_facts_in_hand(settings, owner, port, name):
    """SIGSTOP once it has folded facts of groups that wait for members, which it flushes seconds later."""
    for again in range(20):
        flushed(settings, f"{name}{again}-flushed-")  # the seconds begin
        before = facts_folded(port)
        groups = [f"{name}{again}-{number}" for number in range(4)]
        events = [one for group in groups for one in (facts.opened(group, expected_size=2), *pool.episode(group, "t"))]
        pool.publish(settings, map(pool.outgoing, events))
        pool.wait_for("facts in hand", partial(folded_more, port, before, len(events)))
        owner.signal(signal.SIGSTOP)
        if not pool.folded_up_to(settings, end_offsets(settings, [CALLS, REWARDS])):
            return
        owner.signal(signal.SIGCONT)
    raise AssertionError("each time it had flushed before it was stopped")


def folded_more(port, before, number):
    return facts_folded(port) >= before + number


def facts_folded(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as reply:
        exposed = reply.read().decode()
    return float(re.search(r'^claw_streams_facts_total\{outcome="folded"\} (\S+)$', exposed, re.MULTILINE)[1])


def ended_or_assigned(worker, before):
    return not worker.running or len(worker.said("streams_assigned")) > before


@pytest.mark.timeout(120 + 60 * ROUNDS)
def test_a_stopped_owner_with_nothing_in_hand_keeps_nothing(log_settings, start):
    """Awake, it is fenced if it folds before the group tells it; else it comes back and reads what its successor wrote."""
    owner = start()
    for number in range(ROUNDS):
        flushed(log_settings, f"before{number}-")
        before = len(owner.said("streams_assigned"))
        owner.signal(signal.SIGSTOP)
        successor = taken_over(log_settings, start, f"after{number}-")
        owner.signal(signal.SIGCONT)
        pool.wait_for("its end or its return", partial(ended_or_assigned, owner, before))
        if owner.running:
            assert owner.said("streams_assigned")[before]["kept"] == [], owner.log()
        else:
            assert owner.wait() == ExitCode.FENCED, owner.log()
            owner = start()
        flushed(log_settings, f"both{number}-")
        assert successor.stop() == ExitCode.STOPPED, successor.log()
    whole(log_settings)


@pytest.mark.timeout(120 + 60 * ROUNDS)
def test_the_broker_is_killed_under_load_and_comes_back(local_broker, local_log, start):
    """What was acknowledged survives; a worker that gave up meanwhile is started again, as its supervisor would."""
    settings = local_log.model_copy(update={"ack_timeout_ms": PATIENT_MS})
    workers = [start(settings=settings)]
    traffic = pool.Traffic(settings)
    dice = random.Random(3)
    for _ in range(ROUNDS):
        wait_for_more_under(settings, workers, start)
        time.sleep(dice.uniform(0, 0.5))
        assert traffic.flowing
        local_broker.kill()
        local_broker.start()
        assert local_broker.bootstrap == settings.bootstrap_servers
    wait_for_more_under(settings, workers, start)
    traffic.done()
    ends = end_offsets(settings, [CALLS, REWARDS])
    supervised("everything folded", lambda: pool.folded_up_to(settings, ends), settings, workers, start)
    whole(settings)


def wait_for_more_under(settings, workers, start):
    before = pool.folded(settings)
    supervised("new positions", lambda: pool.folded(settings) > before, settings, workers, start)


def supervised(what, holds, settings, workers, start):
    """Until it holds, as a supervisor would wait: a worker that ended is followed by another."""

    def looked_after():
        if not workers[-1].running:
            workers.append(start(settings=settings))
        return holds()

    pool.wait_for(what, looked_after, 120)


def twice(events, dice):
    """Every record delivered twice, the second time anywhere later."""
    again = list(events)
    dice.shuffle(again)
    return [*events, *again]


def shuffled(events, dice):
    """Rewards before their calls, completions before everything."""
    return dice.sample(events, len(events))


@pytest.mark.timeout(60 + 30 * ROUNDS)
def test_whatever_the_order(log_settings, start):
    """Every trajectory ends ready, with each reward counted once."""
    start()
    for seed in range(ROUNDS):
        for weather in (twice, shuffled):
            events = pool.load(groups=6, members=3, prefix=f"{weather.__name__}{seed}-")
            pool.publish(log_settings, map(pool.outgoing, weather(events, random.Random(seed))))
        whole(log_settings)
    ends = [one for one in pool.decoded(log_settings) if isinstance(one, TrajectoryRecord)]
    assert [(one.status, one.ready, one.return_total) for one in ends] == [("completed", True, 1.5)] * 36 * ROUNDS


@pytest.mark.timeout(60 + 20 * ROUNDS)
def test_a_fold_that_raises_on_one_event_parks_that_event(log_settings, start):
    """In the fold or in the rows that are made of it: one dead letter, its trajectory flagged, all else as the oracle says."""
    start(module="tests.streams.hampered")
    for seed in range(ROUNDS):
        bad = f"bad{seed}"
        boom = [facts.reward(bad, "t0", name=name) for name in ("one", "boom", "unwritable")]
        random.Random(seed).shuffle(boom)
        around = [*pool.load(groups=4, members=2, prefix=f"good{seed}-"), *pool.episode(bad, "t0")]
        pool.publish(log_settings, map(pool.outgoing, [*around, *boom, *pool.episode(bad, "late")]))
        ends = end_offsets(log_settings, [CALLS, REWARDS])
        pool.wait_for("everything folded", partial(pool.folded_up_to, log_settings, ends))
    good = [(fact, at) for fact, at in pool.facts_in_log(log_settings) if not fact.group_id.startswith("bad")]
    others, have = oracle.pool_of(good), pool.pool(log_settings)
    assert {key: have[key] for key in others} == others
    letters = [(letter.key, dict(letter.headers)["claw_reason"]) for letter in pool.letters(log_settings)]
    assert sorted(letters) == sorted(2 * [(group_key(f"bad{seed}"), b"fold_bug") for seed in range(ROUNDS)])
    of_bad = {
        (one.group_id, one.trajectory_id): one.reasons
        for one in pool.decoded(log_settings)
        if isinstance(one, TrajectoryRecord) and one.group_id.startswith("bad")
    }
    reasons = {"t0": ("fold_bug",), "late": ()}
    assert of_bad == {(f"bad{seed}", name): why for seed in range(ROUNDS) for name, why in reasons.items()}
