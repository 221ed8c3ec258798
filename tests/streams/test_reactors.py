"""Decisions of the clock: what is due, what is not, and that deciding twice is deciding once."""

from itertools import permutations

import pytest
from msgspec.structs import replace

from claw_r1.datapool.batch.candidates import PooledGroup, with_members
from claw_r1.datapool.batch.eligibility import eligible
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.fold.fold import fold
from claw_r1.datapool.fold.project import image, project
from claw_r1.datapool.fold.restore import restore
from claw_r1.streams.decision_writer import DecisionGate
from claw_r1.streams.partition.state import PartitionState
from claw_r1.streams.reactors import decide, outlived, waits
from tests import facts
from tests.trainer import pooled

IDLE_US = 100
AT_START = facts.envelope("e0", at_us=0)


def group(*events):
    state = None
    for fact, position in facts.placed(events):
        state = fold(state, fact, position)
    return image(state)


def kinds(decisions):
    return [(type(one).__name__, getattr(one, "trajectory_id", None), getattr(one, "reason", "")) for one in decisions]


def declared(**changes):
    return facts.opened(envelope=AT_START, **{"expected_size": 2, "deadline_us": 50, **changes})


def session(idle_s=0.00005, **changes):
    """What the gateway registers of a caller that completes nothing: silent for 50 us, it is complete."""
    return facts.started("t", "t", envelope=AT_START, idle_s=idle_s, **changes)


SPOKE = facts.call("t", "t", envelope=facts.envelope("e1", at_us=10))


def test_nothing_is_decided_before_its_time():
    """Neither deadline nor idle time is over."""
    busy = group(declared(), facts.call(envelope=facts.envelope(at_us=10)))
    assert decide([busy], 49, IDLE_US) == []


def test_at_the_deadline_open_members_are_abandoned_first():
    """The group is not closed while a member is open: its completion may be on its way."""
    late = group(declared(), facts.call(trajectory="t"), facts.completed(trajectory="u", reward=1.0))
    assert kinds(decide([late], 50, IDLE_US)) == [("TrajectoryAbandoned", "t", "deadline")]


def test_then_the_group_is_closed_with_those_that_are_over():
    """The members of a closed group are those that its event lists; one that gave up keeps it from nothing."""
    history = [
        declared(),
        facts.call(trajectory="t"),
        facts.call(trajectory="u"),
        facts.completed(trajectory="u", reward=1.0),
    ]
    late = group(*history)
    (abandoned,) = decide([late], 50, IDLE_US)
    (closed,) = decide([group(*history, abandoned)], 50, IDLE_US)
    assert closed.members == ("t", "u")
    after = group(*history, abandoned, closed)
    assert after.record.ready
    assert [(member.trajectory_id, member.ready) for member in after.record.members] == [("t", False), ("u", True)]
    assert decide([after], 10**12, IDLE_US) == []


def test_idle_trajectories_are_abandoned_and_idle_groups_closed_without_a_deadline():
    """Without a deadline, silence decides."""
    quiet = [declared(deadline_us=None), facts.call(envelope=facts.envelope(at_us=10))]
    assert decide([group(*quiet)], 109, IDLE_US) == []
    (abandoned,) = decide([group(*quiet)], 110, IDLE_US)
    assert kinds([abandoned, *decide([group(*quiet, abandoned)], 110, IDLE_US)]) == [
        ("TrajectoryAbandoned", "t", "idle"),
        ("GroupClosed", None, "idle"),
    ]


def test_a_group_nobody_declared_is_never_closed():
    """Black-box traffic has no size to miss."""
    alone = [facts.call(envelope=AT_START)]
    (abandoned,) = decide([group(*alone)], 10**9, IDLE_US)
    assert decide([group(*alone, abandoned)], 10**9, IDLE_US) == []


def test_a_ready_group_needs_no_closing():
    """Its size is reached; a deadline changes nothing."""
    ready = group(declared(expected_size=1), facts.call(), facts.completed(reward=1.0))
    assert ready.record.ready
    assert decide([ready], 10**12, IDLE_US) == []


def test_a_ready_group_that_lacks_a_reward_is_closed_at_its_deadline():
    """Nobody trains it, so it must not hold its room for ever; before the deadline judges have time."""
    history = [declared(expected_size=1), facts.call(), facts.completed()]
    unjudged = group(*history)
    assert (unjudged.record.ready, waits(unjudged.record)) == (True, True)
    assert decide([unjudged], 49, 1) == []
    (closed,) = decide([unjudged], 50, IDLE_US)
    assert (closed.members, closed.reason) == (("t",), "deadline")
    assert not waits(group(*history, closed).record)
    judged = group(*history, facts.reward())
    assert (waits(judged.record), decide([judged], 10**12, IDLE_US)) == (False, [])


def test_a_ready_group_without_a_deadline_that_nobody_judges_is_closed_when_it_has_been_quiet_for_long():
    """Versions need not move on where nothing is trained, so staleness alone would never give its room back."""
    history = [
        declared(expected_size=1, deadline_us=None),
        facts.call(),
        facts.completed(envelope=facts.envelope(at_us=7)),
    ]
    unjudged = group(*history)
    assert (unjudged.record.ready, waits(unjudged.record)) == (True, True)
    assert decide([unjudged], 106, IDLE_US) == []
    (closed,) = decide([unjudged], 107, IDLE_US)
    assert (closed.members, closed.reason) == (("t",), "idle")
    assert not waits(group(*history, closed).record)
    judged = group(*history, facts.reward())
    assert (waits(judged.record), decide([judged], 10**12, IDLE_US)) == (False, [])
    undeclared = group(*history[1:])
    assert (waits(undeclared.record), decide([undeclared], 10**12, IDLE_US)) == (False, [])


def test_what_nobody_touched_for_long_leaves_the_pool_and_its_facts_stay():
    """Retention is an eviction like any other: of the whole group, a stub stays, deciding twice is deciding once."""
    history = [facts.call(), facts.completed(reward=1.0), facts.call("g", "u"), facts.evicted("g", "u")]
    old = group(*history).record
    assert outlived([old], 99, 100) == []
    (first,), (second,) = outlived([old], 100, 100), outlived([old], 500, 100)
    assert first.envelope.event_id == second.envelope.event_id
    assert (first.group_id, first.reason, first.envelope.run_id) == ("g", "retention", "run")
    after = group(*history, first)
    assert (after.record.members, after.record.reasons) == ((), ("evicted",))
    assert not waits(after.record)


def test_a_declared_group_that_is_evicted_waits_for_nothing():
    """Otherwise each look of the reactors would read its stub, for ever."""
    open_yet = group(declared(), facts.call())
    assert waits(open_yet.record)
    assert not waits(group(declared(), facts.call(), facts.evicted_group()).record)


def test_a_second_reactor_decides_the_same_events():
    """event_id is of (subject, kind, last progress), whenever and by whomever it is decided."""
    late = group(declared(), facts.call())
    first, second = decide([late], 50, IDLE_US), decide([late], 77, IDLE_US)
    assert [one.envelope.event_id for one in first] == [one.envelope.event_id for one in second]
    moved = group(declared(), facts.call(), facts.call(call_id="d", envelope=facts.envelope(at_us=20)))
    assert decide([moved], 50, IDLE_US)[0].envelope.event_id != first[0].envelope.event_id


def test_a_completion_after_being_abandoned_counts_whether_or_not_the_group_is_closed():
    """Completed outranks abandoned; who was over when the group was closed is its member."""
    history = [declared(expected_size=1), facts.call()]
    (abandoned,) = decide([group(*history)], 50, IDLE_US)
    (closed,) = decide([group(*history, abandoned)], 50, IDLE_US)
    completed = facts.completed(reward=1.0)
    assert group(*history, abandoned, completed).record.ready
    assert group(*history, abandoned, closed).record.reasons == ("no_ready_member",)
    assert group(*history, abandoned, closed, completed).record.ready


@pytest.mark.parametrize(
    ("fields", "members"),
    [
        ({}, ["t0", "t1"]),
        ({"unfinished": "train"}, ["t0", "t1", "t2"]),
        ({"unfinished": "mask"}, ["t0", "t1", "t2"]),
        ({"algorithm": "sft", "policy": "any"}, ["t0", "t1", "t2", "t3"]),
    ],
)
def test_what_a_spec_counts_of_members_that_gave_up_is_the_same_before_and_after_the_closing(fields, members):
    """Whenever the trainer looks: t2 gave up with a reward, t3 failed without an outcome; the time of a round decides nothing."""
    played = pooled.group("g", [0.0, 1.0, None, None], deadline_us=50)
    given_up, (_, _, failing) = played[:-3], played[-3:]
    played = [*given_up[:-1], facts.reward("g", "t2", 0.5), *played[-3:-1], replace(failing, status="failed")]
    spec = BatchSpec.model_validate({"groups_per_batch": 1, "group_size": 2, **fields})
    (abandoned,) = decide([group(*played)], 50, IDLE_US)
    (closed,) = decide([group(*played, abandoned)], 50, IDLE_US)
    for history in ([*played, abandoned], [*played, abandoned, closed]):
        rows = pooled.pooled(history).pool
        (record,) = rows.groups()
        counted = with_members(rows, record, spec)
        assert [member.record.trajectory_id for member in counted.members] == members
    assert isinstance(eligible(rows, record, spec, 0, pooled.RUN), PooledGroup)


def test_an_open_member_of_a_closed_group_is_abandoned_when_it_is_idle():
    """Nobody else would ever end the wait; who is not listed holds nobody up and is left alone."""
    history = [
        declared(deadline_us=None),
        facts.call(),
        facts.completed(reward=1.0),
        facts.call("g", "u", envelope=facts.envelope(at_us=10)),
        facts.call("g", "late"),
        facts.closed(members=["t", "u", "who"]),
    ]
    held = group(*history)
    assert (held.record.reasons, waits(held.record)) == (("members_open",), True)
    assert decide([held], 109, IDLE_US) == []
    (abandoned,) = decide([held], 110, IDLE_US)
    assert kinds([abandoned]) == [("TrajectoryAbandoned", "u", "idle")]
    after = group(*history, abandoned)
    assert (after.record.ready, waits(after.record), decide([after], 10**12, IDLE_US)) == (True, False, [])


def test_a_decision_waits_until_everything_before_it_is_folded():
    """A worker that was away must not abandon what was completed in its absence."""
    due = decide([group(declared(), facts.call())], 50, IDLE_US)
    behind, there = PartitionState(0, 1, offsets={"c": 7}), PartitionState(0, 1, offsets={"c": 9})
    gate = DecisionGate()
    assert gate.unknown(due)
    assert gate.ripe(due, there) == []
    gate.note(due, {("c", 0): 9, ("c", 1): 99})
    assert not gate.unknown(due)
    assert gate.ripe(due, behind) == []
    assert gate.ripe(due, there) == due
    gate.note(due, {("c", 0): 50})
    assert gate.ripe(due, there) == due
    gate.forget_all_but([])
    assert gate.unknown(due), "what is due no more is forgotten"


def test_a_session_is_complete_after_a_silence_of_its_own():
    """Not abandoned; a group of one that nobody declared is ready, judged or not, and nothing is left to decide."""
    history = [session(), SPOKE]
    assert waits(group(*history).record)
    assert decide([group(*history)], 59, 1) == []
    (completed,) = decide([group(*history)], 60, IDLE_US)
    assert kinds([completed]) == [("TrajectoryCompleted", "t", "")]
    assert (completed.status, completed.calls, completed.rewards, completed.reward) == ("completed", None, None, None)
    after = group(*history, completed)
    assert (after.record.ready, after.record.declared, after.record.reward_mean) == (True, False, None)
    assert (waits(after.record), decide([after], 10**12, IDLE_US)) == (False, [])
    assert group(*history, completed, facts.reward("t", "t", 0.5)).record.reward_mean == 0.5


def test_a_session_may_be_silent_for_longer_than_others():
    """A person at lunch: the idle time of trajectories that somebody should have completed is not that of a session."""
    patient = [session(idle_s=1.0), SPOKE]
    assert decide([group(*patient)], 10 + 999_999, 1) == []
    assert kinds(decide([group(*patient)], 10 + 1_000_000, 1)) == [("TrajectoryCompleted", "t", "")]
    in_time = [facts.opened("t", envelope=AT_START, deadline_us=50), *patient]
    assert kinds(decide([group(*in_time)], 50, 1)) == [("TrajectoryAbandoned", "t", "deadline")]


def test_a_second_reactor_completes_a_session_by_the_same_event():
    """Whenever it looks, and from records alone, as after a restart; its word changes nothing."""
    history = [session(), SPOKE]
    (first,) = decide([group(*history)], 60, IDLE_US)
    restored = restore(project(group(*history).state).values())["t"]
    assert decide([image(restored)], 999, IDLE_US) == [first]
    assert project(group(*history, first, first).state) == project(group(*history, first).state)


def test_an_agents_own_completion_counts_whenever_it_is_heard_of():
    """It waited in a spool while the reactor saw silence: its counts and its reward are not lost."""
    history = [session(), SPOKE]
    (decided,) = decide([group(*history)], 60, IDLE_US)
    own = facts.completed("t", "t", envelope=facts.envelope("e2", at_us=11), calls=2, reward=0.5)
    for order in permutations([*history, decided, own]):
        assert group(*order).record.members[0].return_total == 0.5
        assert not group(*order).record.ready, "it counted two calls, and one is here"


def test_a_session_that_goes_on_after_its_end_stays_complete():
    """Its calls belong to it, and nothing is decided again."""
    history = [session(), SPOKE]
    (completed,) = decide([group(*history)], 60, IDLE_US)
    later = facts.call("t", "t", "d", envelope=facts.envelope("e3", at_us=500), received_us=500)
    on = group(*history, completed, later)
    assert (on.record.ready, waits(on.record), decide([on], 10**12, IDLE_US)) == (True, False, [])
