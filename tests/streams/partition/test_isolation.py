"""Groups, trajectories and calls beyond what a record of the log may hold: their partition goes on."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from structlog.testing import capture_logs

from claw_r1.datapool.digests import call_digest
from claw_r1.datapool.fold import bounds, project
from claw_r1.datapool.fold.fold import fold
from claw_r1.datapool.fold.restore import restore
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.codec import decode, encode
from claw_r1.schemas.events import CallCaptured, GroupRecord, StepRecord, TrajectoryRecord
from claw_r1.schemas.topics import LARGEST_RECORD_BYTES
from claw_r1.streams.partition import isolation, row_sizes
from claw_r1.streams.partition.state import PartitionState
from claw_r1.streams.reactors import decide, outlived
from tests import facts
from tests.soak import SOAK
from tests.streams.partition.test_state import Log, record

WIDE = "\U0001d535" * 507
"""With five digits the longest id that the gateway takes, in the widest characters."""
MIB = 1 << 20
CROWD = 4200 if SOAK else 1200
"""More than a record lists. In `make soak` as many as fill a record of the log, were they all listed."""


def wide(number):
    return f"{WIDE}{number:05}"


def run(events, *, flush=4000):
    """The facts through a partition, flushed now and then into a log that takes no record above its limit."""
    log, broker = Log(events), MemoryLog(LogSettings(partitions=1))
    state = log.recovered()
    with capture_logs():
        for number, one in enumerate(log.facts, start=1):
            state.apply(one)
            if number % flush == 0 or number == len(log.facts):
                commit(log, broker, state)
    return log, state


def commit(log, broker, state):
    batch = state.take_batch(0)
    broker.append(batch)
    for item in batch:
        log.rows[item.topic.name, item.key] = item.value
    log.letters += [item for item in batch if item.topic.name == "dead-letters"]


def rows(log, kind):
    return [one for value in log.pool().values() if isinstance(one := decode(value), kind)]


def reasons(log):
    return [dict(letter.headers)["claw_reason"] for letter in log.letters]


def finished(count):
    for number in range(count):
        yield facts.call("g", wide(number))
        yield facts.completed("g", wide(number), reward=1.0)


@pytest.mark.slow
@pytest.mark.soak
def test_a_group_of_more_members_than_a_record_holds_is_written_taken_over_and_evicted():
    """All trajectories have their rows, the group lists the first and counts the others; verify's oracle agrees."""
    log, _ = run([facts.completed("g", wide(number)) for number in range(CROWD)])
    (group,) = rows(log, GroupRecord)
    assert (len(group.members), group.members_left_out) == (971, CROWD - 971)
    assert (group.ready, group.reasons) == (False, ("no_ready_member", "too_many_members"))
    assert (len(rows(log, TrajectoryRecord)), log.letters) == (CROWD, [])
    assert log.pool() == log.expected()

    again = log.recovered()
    (gone,) = outlived(again.untouched(10**9), 10**18, 1)
    again.apply(record(gone, len(log.facts)))
    commit(log, MemoryLog(LogSettings(partitions=1)), again)
    assert len(rows(log, TrajectoryRecord)) == 0, "also those that the record has no room for"
    assert len(rows(log, GroupRecord)) == 1


def test_a_reactor_closes_an_overfull_group_with_what_its_record_lists():
    """So the closing is no larger than a record, whoever else completed; its group is ready by it."""
    declared = facts.opened("g", expected_size=2, deadline_us=1)
    log, state = run([declared, *finished(1100)])
    (closing,) = decide(state.waiting(), 10**15, 10**18)
    assert len(closing.members) == 971
    state.apply(record(closing, len(log.facts)))
    commit(log, MemoryLog(LogSettings(partitions=1)), state)
    (group,) = rows(log, GroupRecord)
    assert (group.closed, len(group.members), group.members_left_out, group.ready) == (True, 971, 0, True)


@pytest.mark.slow
@pytest.mark.soak
def test_a_trajectory_of_more_calls_than_a_record_holds_is_written():
    """Of captured calls and of failed ones; both read back and go on."""
    calls = [facts.call("g", "t", wide(number), received_us=number) for number in range(CROWD)]
    failures = [facts.failure("g", "t", wide(number)) for number in range(CROWD)]
    log, _ = run([*failures, *calls, facts.completed("g", "t")])
    (trajectory,) = rows(log, TrajectoryRecord)
    assert (len(trajectory.calls), trajectory.calls_left_out, trajectory.trainable_calls) == (1024, CROWD - 1024, CROWD)
    assert (len(trajectory.failed_calls), trajectory.reasons) == (1000, ("too_many_calls",))
    assert (len(rows(log, StepRecord)), log.letters) == (CROWD, [])
    assert log.pool() == log.expected()


def spoilt():
    """Each fact can be written by itself; both together are more than the row of the call may have."""
    return [facts.started("g", "t", task="x" * (5 * MIB)), facts.curated("g", "t", "c", note="y" * (4 * MIB))]


@pytest.mark.parametrize("flush", [1, 100], ids=["one by one", "at once"])
def test_a_fact_that_makes_a_row_too_large_is_parked_and_its_partition_goes_on(flush):
    """A dead letter says so, what it speaks of is flagged; the other facts of the group count, before it and after it."""
    group = [facts.call("g", "t", "c"), facts.call("g", "u", "d"), *spoilt(), facts.completed("g", "u", reward=1.0)]
    log, state = run([*group, facts.call("g", "t", "e")], flush=flush)
    assert reasons(log) == [b"record_too_large"]
    steps = {one.call_id: one for one in rows(log, StepRecord)}
    assert {name: one.reasons for name, one in steps.items()} == {"c": ("fold_bug",), "d": (), "e": ()}
    assert {one.trajectory_id: (one.status, one.ready) for one in rows(log, TrajectoryRecord)} == {
        "t": ("open", False),
        "u": ("completed", True),
    }
    state.apply(record(spoilt()[1], 0))  # delivered again
    commit(log, MemoryLog(LogSettings(partitions=1)), state)
    assert reasons(log) == [b"record_too_large"]


@given(st.lists(facts.facts(), min_size=2, max_size=20), st.randoms(use_true_random=False))
@settings(max_examples=1000 if SOAK else 40, deadline=None)
def test_whatever_finds_no_room_what_is_written_fits_together(events, random):
    """Among facts of any kind, flushes and restarts: each step names its own fact, each fact one letter, each row room."""
    with pytest.MonkeyPatch.context() as patch, capture_logs():
        patch.setattr(row_sizes, "RECORD_BYTES_MAX", room := random.choice([420, 500, 700]))
        patch.setattr(isolation, "SEARCHES_MAX", random.choice([0, 1, 50]))
        log = Log(events)
        state = log.recovered()
        for one in log.facts:
            for _ in range(random.choice([1, 1, 2])):
                state.apply(one)
            if random.random() < 0.3:
                log.commit(state)
                state = random.choice([state, log.recovered()])
        log.commit(state)
    captures = {one.offset: event for one in log.facts if isinstance(event := one.event(), CallCaptured)}
    steps = [one for one in rows(log, StepRecord) if one.position is not None]
    assert all(one.digest == call_digest(captures[one.position.offset]) for one in steps)
    told = [dict(letter.headers) for letter in log.letters]
    assert len({(one["claw_source_topic"], one["claw_source_offset"]) for one in told}) == len(told)
    assert all(len(key) + len(value) < room + 1024 for (_, key), value in log.pool().items())
    for state in restore(map(decode, log.pool().values())).values():
        assert all(log.rows[key.topic, key.key] == encode(record) for key, record in project.project(state).items())


@pytest.mark.parametrize("flush", [1, 100], ids=["one by one", "at once"])
def test_a_capture_that_is_parked_leaves_the_one_that_counts(flush):
    """Or the step would name the fact of a call that nobody was given."""
    again = facts.call("g", "t", "c", attempt=1, received_us=1, ids=(4, 5), tags=("x" * (5 * MIB),))
    log, _ = run([facts.started("g", "t", task="y" * (5 * MIB)), facts.call("g", "t", "c"), again], flush=flush)
    (step,) = rows(log, StepRecord)
    assert (reasons(log), step.attempt, step.reasons) == ([b"record_too_large"], 0, ("fold_bug",))
    assert step.digest == call_digest(facts.call("g", "t", "c"))


def test_one_fact_among_thousands_is_found_without_making_all_rows_for_each():
    """Finding it folds each of the others a few times; one projection for each fact would take minutes in a large group."""
    folds = []

    def counted(state, fact, position):
        folds.append(fact)
        return fold(state, fact, position)

    events = [facts.failure("g", f"t{number}") for number in range(1000)]
    first, second = spoilt()
    log = Log([facts.call("g", "t", "c"), first, *events[:700], second, *events[700:]])
    state = PartitionState(0, 1, fold=counted)
    with capture_logs():
        for one in log.facts:
            state.apply(one)
        commit(log, MemoryLog(LogSettings(partitions=1)), state)
    assert reasons(log) == [b"record_too_large"]
    assert len(rows(log, TrajectoryRecord)) == 1001
    assert len(folds) < 5 * len(log.facts)


def test_thousands_of_facts_without_room_hold_nobody_up(monkeypatch):
    """Of one trajectory and amid those of others, which all count: each row is made a few times and no more."""
    made = []

    def counted(*args):
        made.append(args)
        return record_of(*args)

    record_of = project._trajectory_record
    monkeypatch.setattr(project, "_trajectory_record", counted)
    monkeypatch.setattr(row_sizes, "RECORD_BYTES_MAX", 5000)
    monkeypatch.setattr(bounds, "GROUP_MEMBERS_BYTES_MAX", 1000)
    events = []
    for number in range(1000):
        events += [facts.reward("g", "t", name=f"{number:099}"), facts.failure("g", f"u{number}")]
    log, state = run([facts.call("g", "t"), *events])
    kept = [one for one in rows(log, TrajectoryRecord) if one.failed_calls]
    assert (len(kept), {*reasons(log)}) == (1000, {b"record_too_large"})
    assert len(made) < 4 * len(log.facts)

    state.apply(record(facts.evicted("g", "t"), len(log.facts)))
    commit(log, MemoryLog(LogSettings(partitions=1)), state)
    (gone,) = [one for one in rows(log, TrajectoryRecord) if not one.failed_calls]
    assert gone.status == "evicted"


def test_a_record_that_no_letter_has_room_for_stays_at_its_source():
    """Poison of the largest size: a letter without it names its place. A call whose tokens alone fill a record has room."""
    tokens = facts.call("g", "t", "c", response_ids=b"\1" * (LARGEST_RECORD_BYTES - 3000), response_logprobs=b"")
    log = Log([facts.call("g", "u"), tokens, facts.call("g", "v")])
    poison = replace(log.facts[0], value=b"\1" * (LARGEST_RECORD_BYTES - 100), offset=3)
    broker, state = MemoryLog(LogSettings(partitions=1)), log.recovered()
    with capture_logs():
        outcomes = [state.apply(one) for one in (*log.facts, poison)]
    commit(log, broker, state)
    assert outcomes == ["folded", "folded", "folded", "poison"]
    assert reasons(log) == [b"bad_magic"]
    assert [dict(letter.headers)["claw_source_offset"] for letter in log.letters] == [b"3"]
    assert all((letter.key, letter.value) == (None, None) for letter in log.letters)
    assert len(rows(log, StepRecord)) == 3
