"""Reactors in running workers: one acts at a time, none acts unasked, and whose clock is wrong decides nothing."""

import random
import signal
import time

import pytest
from msgspec.structs import replace

from claw_r1.eventlog.kafka.admin import end_offsets
from claw_r1.eventlog.partitioner import partition_of
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.events import (
    CallCaptured,
    GroupClosed,
    Timings,
    TrajectoryAbandoned,
    TrajectoryCompleted,
    TrajectoryRecord,
)
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS, DEAD_LETTERS, REWARDS
from claw_r1.streams.reactors import PRODUCER
from claw_r1.streams.rebuild import rebuild
from tests import facts
from tests.patience import FACTOR
from tests.streams import pool
from tests.streams.pool import ROUNDS, whole

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

QUICK = {"CLAW_STREAMS_REACTOR_INTERVAL_S": "0.1"}
SECOND_US = 1_000_000
HOUR_US = 3600 * SECOND_US


def due_at(deadline_us, group):
    """One member is done and one is stuck; only the deadline can end it."""
    declared = facts.opened(group, expected_size=2, deadline_us=deadline_us)
    return [declared, *pool.episode(group, "done"), facts.call(group, "stuck")]


def publish(settings, events):
    pool.publish(settings, map(pool.outgoing, events))


def told(decisions):
    return [(type(one), one.group_id, one.reason) for one in decisions]


def both(group):
    """What a deadline makes of `due_at`."""
    return [(TrajectoryAbandoned, group, "deadline"), (GroupClosed, group, "deadline")]


def closed(settings, group):
    return any(isinstance(one, GroupClosed) and one.group_id == group for one in pool.decisions(settings))


def completions_decided(settings):
    """Groups of the completions that reactors wrote."""
    events = [event for event, _ in pool.facts_in_log(settings) if isinstance(event, TrajectoryCompleted)]
    return [one.group_id for one in events if one.envelope.producer == PRODUCER]


def partitions(worker):
    """Of the latest assignment."""
    assigned = worker.said("streams_assigned")
    return [*assigned[-1]["opened"], *assigned[-1]["kept"]] if assigned else []


def test_at_a_deadline_that_its_owner_does_not_see_the_other_worker_acts_alone(log_settings, start):
    """Two workers live; the owner of a group is stopped before the deadline and wakes up after it: decided once."""
    workers = [start(**QUICK), start(**QUICK)]
    pool.wait_for("a share for each", lambda: sorted(map(partitions, workers)) == [[0], [1]])
    mine = partition_of(group_key("g"), log_settings.partitions)
    owner, other = sorted(workers, key=lambda worker: mine not in partitions(worker))
    publish(log_settings, due_at(now_us() + round(6 * FACTOR * SECOND_US), "g"))
    ends = end_offsets(log_settings, [CALLS, REWARDS])
    pool.wait_for("all of it folded", lambda: pool.folded_up_to(log_settings, ends))
    owner.signal(signal.SIGSTOP)
    assert pool.decisions(log_settings) == []
    pool.wait_for("the closing", lambda: closed(log_settings, "g"))
    before = len(owner.said("streams_assigned"))
    owner.signal(signal.SIGCONT)
    pool.wait_for("its end or return", lambda: not owner.running or len(owner.said("streams_assigned")) > before)
    publish(log_settings, pool.load(groups=4))
    whole(log_settings)
    time.sleep(5 * float(QUICK["CLAW_STREAMS_REACTOR_INTERVAL_S"]))
    assert told(pool.decisions(log_settings)) == both("g")
    assert len(other.said("streams_decided")) == 2
    assert owner.said("streams_decided") == []


def test_nothing_is_decided_without_reactors_and_by_a_rebuild(log_settings, start):
    """`--no-reactors` and `claw rebuild` fold what is overdue and old, and write no fact; a worker with reactors acts.

    A session that fell silent meanwhile is completed once by who restores it, and stays so when it goes on.
    """
    publish(log_settings, [facts.started("s", "s", idle_s=1.0), facts.call("s", "s", "c0")])
    publish(log_settings, due_at(now_us() - SECOND_US, "g"))
    before = end_offsets(log_settings, [CALLS, REWARDS, DEAD_LETTERS])
    old = {"CLAW_STREAMS_RETENTION_S": "1", "CLAW_STREAMS_RETENTION_INTERVAL_S": "0.1"}
    idle = start("--no-reactors", **QUICK, **old)
    whole(log_settings)
    second = log_settings.model_copy(update={"generation": 2})
    rebuild(second, end_offsets(log_settings, [CALLS, REWARDS]), lambda done, total: None)
    assert pool.pool(second) == pool.pool(log_settings)
    time.sleep(5 * float(QUICK["CLAW_STREAMS_REACTOR_INTERVAL_S"]))
    assert idle.stop() == 0
    assert end_offsets(log_settings, [CALLS, REWARDS, DEAD_LETTERS]) == before
    start(**QUICK)
    pool.wait_for("the end of the session", lambda: completions_decided(log_settings))
    publish(log_settings, [facts.reward("s", "s", 0.5), facts.call("s", "s", "c1")])
    pool.wait_for("the closing", lambda: closed(log_settings, "g"))
    whole(log_settings)
    assert told(pool.decisions(log_settings)) == both("g")
    assert completions_decided(log_settings) == ["s"]
    (record,) = [one for one in pool.decoded(log_settings) if isinstance(one, TrajectoryRecord) and one.group_id == "s"]
    assert (record.status, record.ready, record.calls, record.return_total) == ("completed", True, ("c0", "c1"), 0.5)


def seen_by(clock_us, events):
    """The facts of a producer whose clock shows this."""
    for number, event in enumerate(events):
        told_us = clock_us + number
        if isinstance(event, CallCaptured):
            event = replace(event, timings=Timings(received_us=told_us, dispatched_us=told_us, done_us=told_us))
        yield facts.changed_envelope(event, occurred_at_us=told_us)


@pytest.mark.soak
@pytest.mark.timeout(60 + 20 * ROUNDS)
def test_clocks_an_hour_off_change_no_decision_and_no_outcome(log_settings, start):
    """Deadlines are kept by the reactor's clock alone: not before, not never, whatever the producers' clocks say."""
    start(**QUICK, CLAW_STREAMS_TRAJECTORY_IDLE_TIMEOUT_S="7200")
    dice = random.Random(4)
    for number in range(ROUNDS):
        now, due, open_ = now_us(), f"due{number}", f"open{number}"
        deadline = now + 2 * SECOND_US
        events = [*seen_by(now - HOUR_US, due_at(deadline, due))]
        events += seen_by(now + HOUR_US, due_at(now + HOUR_US // 2, open_))
        for name in "abcdef":
            clock_us = now + dice.randint(-HOUR_US, HOUR_US)
            events += seen_by(clock_us, pool.episode(f"whole{number}", name))
        publish(log_settings, dice.sample(events, len(events)))
        pool.wait_for("the closing", lambda due=due: closed(log_settings, due))
        whole(log_settings)
        decided = [one for one in pool.decisions(log_settings) if one.group_id.endswith(str(number))]
        assert told(decided) == both(due)
        assert decided[0].envelope.occurred_at_us >= deadline
        assert decided[1].members == ("done", "stuck")
    ends = [one for one in pool.decoded(log_settings) if isinstance(one, TrajectoryRecord)]
    whole_ones = [one for one in ends if one.group_id.startswith("whole")]
    assert [(one.status, one.ready, one.return_total) for one in whole_ones] == [("completed", True, 1.5)] * 6 * ROUNDS
