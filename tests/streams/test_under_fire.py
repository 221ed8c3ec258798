"""The Faust shell under fire. The invariant each time: the pool is what the oracle makes of the facts, byte for byte; no
record is missing; every partition moves on; nothing is a dead letter that is not poison.

Each trouble comes twice in `make test`, and N times in `make soak N=100`.
"""

import os
import random
import signal
import time
from functools import partial

import pytest

from eventlog.admin import create_topics, end_offsets
from eventlog.settings import LogSettings
from schemas.envelopes import now_us
from schemas.events import RewardAssigned, TrajectoryRecord
from schemas.keys import group_key
from schemas.topics import CALLS, REWARDS
from streams.errors import ExitCode
from tests import facts, oracle
from tests.streams import pool

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.soak]

ROUNDS = int(os.environ.get("CLAW_SOAK", "0")) or 2
HOUR_US = 3_600_000_000


def whole(settings, timeout_s=60):
    """The invariant."""
    pool.wait_for_oracle(settings, timeout_s)
    assert pool.letters(settings) == []


@pytest.mark.timeout(60 + 60 * ROUNDS)
def test_killed_at_random_points_under_load(log_settings, start):
    """kill -9 loses nothing: the successor reads state and position from the log."""
    dice = random.Random(1)
    traffic = pool.Traffic(log_settings, pool.load(groups=25 * ROUNDS))
    for _ in range(ROUNDS):
        worker = start()
        pool.wait_for_rows(log_settings)
        time.sleep(dice.uniform(0, 1.5))
        worker.signal(signal.SIGKILL)
        worker.wait()
    start()
    traffic.done()
    whole(log_settings)


@pytest.mark.timeout(60 + 60 * ROUNDS)
def test_workers_that_come_and_go_under_load(log_settings, start):
    """Each rebalance moves partitions between a worker that stays and one that does not."""
    stays = start()
    traffic = pool.Traffic(log_settings, pool.load(groups=40 * ROUNDS))
    pool.wait_for_rows(log_settings)
    for _ in range(ROUNDS):
        guest = start()
        pool.wait_for("the guest's share", lambda guest=guest: "streams_assigned" in guest.log())
        assert guest.stop() == ExitCode.STOPPED, guest.log()
    traffic.done()
    whole(log_settings)
    assert stays.running, stays.log()


def taken_over(settings, start, name, **env):
    """A successor that owns everything and has written facts of its own."""
    successor = start(**env)
    pool.wait_for("the takeover", lambda: "streams_assigned" in successor.log())
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
    rarely = {"CLAW_STREAMS_FLUSH_INTERVAL_S": "5", "CLAW_STREAMS_FLUSH_EVENTS_MAX": "100000"}
    owner = start(**rarely)
    for number in range(ROUNDS):
        flushed(log_settings, f"before{number}-")
        pool.publish(log_settings, map(pool.outgoing, pool.load(groups=5, prefix=f"in-hand{number}-")))
        time.sleep(1.5)  # folded, and the next flush is seconds away
        owner.signal(signal.SIGSTOP)
        successor = taken_over(log_settings, start, f"after{number}-", **rarely)
        owner.signal(signal.SIGCONT)
        assert owner.wait(30) == ExitCode.FENCED, owner.log()
        owner = successor
    whole(log_settings)
    assert owner.running


def assignments(worker):
    return [line for line in worker.log().splitlines() if "streams_assigned" in line]


def ended_or_assigned(worker, before):
    return not worker.running or len(assignments(worker)) > before


@pytest.mark.timeout(120 + 60 * ROUNDS)
def test_a_stopped_owner_with_nothing_in_hand_keeps_nothing(log_settings, start):
    """Awake, it is fenced if it folds before the group tells it; else it comes back and reads what its successor wrote."""
    owner = start()
    for number in range(ROUNDS):
        flushed(log_settings, f"before{number}-")
        before = len(assignments(owner))
        owner.signal(signal.SIGSTOP)
        successor = taken_over(log_settings, start, f"after{number}-")
        owner.signal(signal.SIGCONT)
        pool.wait_for("its end or its return", partial(ended_or_assigned, owner, before))
        if owner.running:
            assert '"kept": []' in assignments(owner)[before], owner.log()
        else:
            assert owner.wait() == ExitCode.FENCED, owner.log()
            owner = start()
        flushed(log_settings, f"both{number}-")
        assert successor.stop() == ExitCode.STOPPED, successor.log()
    whole(log_settings)


@pytest.mark.timeout(120 + 60 * ROUNDS)
def test_the_broker_is_killed_and_comes_back(local_broker, start):
    """What was acknowledged survives; a worker that gave up meanwhile is started again, as its supervisor would."""
    settings = LogSettings(bootstrap_servers=local_broker.bootstrap, prefix="fire", partitions=2)
    create_topics(settings)
    worker = start(settings=settings)
    for number in range(ROUNDS):
        load = [event for name in range(6) for event in pool.episode(f"g{number}-{name}", "t")]
        half = len(load) // 2
        pool.publish(settings, map(pool.outgoing, load[:half]))
        local_broker.kill()
        local_broker.start()
        pool.publish(settings, map(pool.outgoing, load[half:]))
        if not worker.running:
            worker = start(settings=settings)
    ends = end_offsets(settings, [CALLS, REWARDS])

    def folded():
        nonlocal worker
        if not worker.running:
            worker = start(settings=settings)
        return pool.folded_up_to(settings, ends)

    pool.wait_for("everything folded", folded, 120)
    whole(settings)


def twice(events, dice):
    """Every record delivered twice, the second time anywhere later."""
    again = list(events)
    dice.shuffle(again)
    return [*events, *again]


def shuffled(events, dice):
    """Rewards before their calls, completions before everything."""
    return dice.sample(events, len(events))


def skewed(events, dice):
    """Each producer's clock is off by up to an hour."""
    clocks = {event.trajectory_id: now_us() + dice.randint(-HOUR_US, HOUR_US) for event in events}
    return [
        facts.changed_envelope(event, occurred_at_us=clocks[event.trajectory_id] + n) for n, event in enumerate(events)
    ]


@pytest.mark.parametrize("seed", range(ROUNDS))
@pytest.mark.parametrize("weather", [twice, shuffled, skewed])
def test_whatever_the_order_and_the_clocks(log_settings, start, weather, seed):
    """Every trajectory ends ready, with each reward counted once; clocks that are wrong change no outcome."""
    events = weather(pool.load(groups=6, members=3), random.Random(seed))
    start(CLAW_STREAMS_TRAJECTORY_IDLE_TIMEOUT_S="1800" if weather is skewed else "1e10")
    pool.publish(log_settings, map(pool.outgoing, events))
    whole(log_settings)
    ends = [one for one in pool.decoded(log_settings) if isinstance(one, TrajectoryRecord)]
    assert [(one.status, one.ready, one.return_total) for one in ends] == [("completed", True, 1.5)] * 18


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_fold_that_raises_on_one_event_parks_that_event(log_settings, start, seed):
    """Sums that overflow break the projection: one dead letter, its trajectory flagged, everything else as the oracle says."""
    events = pool.load(groups=4, members=2)
    boom = [facts.reward("g1", "t0", 1.7e308, name=name) for name in ("one", "two")]
    random.Random(seed).shuffle(boom)
    start()
    pool.publish(log_settings, map(pool.outgoing, [*events, *boom, *pool.episode("g1", "late")]))
    pool.wait_for("the dead letter", lambda: bool(pool.letters(log_settings)))
    good = [
        (fact, at)
        for fact, at in pool.facts_in_log(log_settings)
        if fact.group_id != "g1" and not (isinstance(fact, RewardAssigned) and fact.value > 1e300)
    ]
    others = oracle.pool_of(good)
    ends = end_offsets(log_settings, [CALLS, REWARDS])
    pool.wait_for("the rest", lambda: pool.folded_up_to(log_settings, ends))
    have = pool.pool(log_settings)
    assert {key: have[key] for key in others} == others
    (letter,) = pool.letters(log_settings)
    assert (letter.key, dict(letter.headers)["claw_reason"]) == (group_key("g1"), b"fold_bug")
    of_g1 = {
        one.trajectory_id: one.reasons
        for one in pool.decoded(log_settings)
        if isinstance(one, TrajectoryRecord) and one.group_id == "g1"
    }
    assert of_g1 == {"t0": ("fold_bug",), "t1": (), "late": ()}
