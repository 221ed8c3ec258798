"""One partition's state: batches that add up to the oracle's pool over any restart, and records that cannot be folded."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from structlog.testing import capture_logs

from claw_r1.datapool import FOLD_VERSION
from claw_r1.datapool.fold.fold import fold
from claw_r1.eventlog.records import Record
from claw_r1.schemas.cloudevents import RUN_HEADER
from claw_r1.schemas.codec import decode, encode
from claw_r1.schemas.events import RewardAssigned, StepRecord, StreamPosition, TrajectoryRecord
from claw_r1.schemas.keys import group_key, parts
from claw_r1.schemas.topics import DEAD_LETTERS, GROUPS, POSITIONS, STEPS, TRAJECTORIES
from claw_r1.streams.cold_store import SqliteColdStore
from claw_r1.streams.errors import FoldVersionMismatch, RowOfAnotherVersion, StoreFailed
from claw_r1.streams.partition import groups
from claw_r1.streams.partition.groups import UNTOUCHED_MAX, ColdRow
from claw_r1.streams.partition.state import PartitionState
from claw_r1.streams.recovery import state_of
from tests import facts, oracle


def record(event, offset, topic=None, **changes):
    fields = {"key": group_key(event.group_id), "value": encode(event), **changes}
    return Record(topic=topic or facts.topic_of(event), partition=0, offset=offset, timestamp_ms=0, **fields)


def group_of(topic, key):
    return group_key(parts(key)[0]) if topic in ("datapool.steps", "datapool.trajectories") else key


class Log:
    """What a broker holds of one partition: facts per topic, and what was committed to the pool."""

    def __init__(self, events):
        offsets = {"claw.calls": itertools.count(), "claw.rewards": itertools.count()}
        self.facts = [record(event, next(offsets[facts.topic_of(event)])) for event in events]
        self.rows = {}
        self.runs = {}
        self.letters = []

    def commit(self, state):
        for item in state.take_batch(0):
            if item.topic is DEAD_LETTERS:
                self.letters.append(item)
            else:
                self.rows[item.topic.name, item.key] = item.value
                self.runs[item.topic.name, item.key] = dict(item.headers).get(RUN_HEADER)

    def recovered(self, resting_max=0):
        cold = self.cold = SqliteColdStore()
        cold.write(
            ColdRow(topic, key, group_of(topic, key), value, 0 if topic == GROUPS.name else None)
            for (topic, key), value in self.rows.items()
            if not key.endswith(b"/tokens")
        )
        return state_of(0, 1, cold, resting_max=resting_max)

    def recovered_cold(self):
        self.recovered()
        return self.cold

    def pool(self):
        return {key: value for key, value in self.rows.items() if value is not None and key[0] != POSITIONS.name}

    def expected(self):
        return oracle.pool_of(
            (one.event(), facts.FactPosition(topic=one.topic, partition=0, offset=one.offset)) for one in self.facts
        )


@given(st.lists(facts.facts(), min_size=1, max_size=20), st.randoms(use_true_random=False))
@settings(max_examples=120, deadline=None)
def test_killed_anywhere_the_pool_ends_as_the_oracle_says(events, random):
    """What was not committed is lost with the process; what was acknowledged too early comes again; the pool is the same."""
    log = Log(events)
    queues = {topic: [one for one in log.facts if one.topic == topic] for topic in ("claw.calls", "claw.rewards")}
    resting_max = random.choice([0, 1, 9])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "LONG_ROW_BYTES", random.choice([0, groups.LONG_ROW_BYTES]))
        _kill_anywhere(log, queues, resting_max, random)
    assert log.letters == []
    assert log.pool().keys() == log.expected().keys()
    assert log.pool() == log.expected()
    _check_headers(log)
    assert decode(log.rows[POSITIONS.name, b"0"]).offsets == {
        topic: len(queue) for topic, queue in queues.items() if queue
    }


def _check_headers(log):
    """Whoever passes over rows of other runs by their headers passes over none of its own."""
    own = {key: decode(value).run_id for (topic, key), value in log.pool().items() if topic == GROUPS.name}
    for (topic, key), run in log.runs.items():
        if (topic, key) in log.pool() and run is not None:
            assert run.decode() == own[group_of(topic, key)]


def test_rows_name_the_run_of_their_group_also_when_it_changes():
    """Calls named one run, the opening, which comes late, another: rows that did not change are written again."""
    log = Log([facts.call(envelope=facts.envelope(run_id="a")), facts.opened(envelope=facts.envelope(run_id="b"))])
    state = PartitionState(0, 1)
    for one, run in zip(log.facts, (b"a", b"b"), strict=True):
        state.apply(one)
        log.commit(state)
        named = {topic: each for (topic, _), each in log.runs.items()}
        assert named == {"datapool.steps": run, "datapool.trajectories": run, GROUPS.name: run, POSITIONS.name: None}
    assert log.pool() == log.expected()


def _kill_anywhere(log, queues, resting_max, random):
    state = log.recovered(resting_max)
    kills = 4
    while any(state.expected(topic) < len(queue) for topic, queue in queues.items()):
        topic = random.choice([name for name, queue in queues.items() if state.expected(name) < len(queue)])
        state.apply(queues[topic][state.expected(topic)])
        if random.random() < 0.2:
            state.apply(random.choice(queues[topic][: state.expected(topic)]))
        if random.random() < 0.3:
            log.commit(state)
        if kills and random.random() < 0.15:
            state, kills = log.recovered(resting_max), kills - 1
    log.commit(state)


def applied(*records, **options):
    state = PartitionState(0, 1, **options)
    with capture_logs():  # rendering a traceback costs seconds
        return state, [state.apply(one) for one in records]


GOOD = facts.call()
POISON = {
    "empty_value": {"value": None},
    "bad_magic": {"value": b"\x01garbage"},
    "unknown_schema_id": {"value": b"\x00\x00\x00\x00\x07abc"},
    "malformed_datum": {"value": encode(GOOD)[:40]},
    "wrong_key": {"key": b"somebody else"},
    "wrong_type": {"value": encode(StepRecord(group_id="g", trajectory_id="t", call_id="c"))},
    "reward_not_finite": {"value": encode(facts.reward(value=float("nan")))},
}


@pytest.mark.parametrize("reason", POISON)
def test_a_poison_record_is_one_dead_letter_and_its_partition_goes_on(reason):
    """The letter is byte-identical, says why, and is not written again when the record is delivered again."""
    poison = record(GOOD, 0, **POISON[reason])
    state, outcomes = applied(poison, record(facts.call(call_id="d"), 1))
    log = Log([])
    log.commit(state)
    state.apply(poison)
    log.commit(state)
    assert outcomes == ["poison", "folded"]
    (letter,) = log.letters
    assert (letter.key, letter.value) == (poison.key, poison.value)
    assert dict(letter.headers)["claw_reason"] == reason.encode()
    assert [key for topic, key in log.pool() if topic == "datapool.groups"] == [b"g"]
    assert state.expected("claw.calls") == 2


def test_what_people_prefer_and_write_passes_the_pool_by():
    """No dead letter, no row of its group, no sign of life: only the offset moves."""
    pair, reply = facts.preferred(), facts.edited(envelope=facts.envelope(at_us=99))
    before, after = Log([]), Log([])
    for log, words in ((before, []), (after, [record(pair, 0), record(reply, 1), record(facts.preferred("new"), 2)])):
        state, outcomes = applied(record(GOOD, 0), *words)
        log.commit(state)
        assert outcomes == ["folded", *["passed_by"] * len(words)]
        assert state.expected("claw.rewards") == len(words)
    assert after.pool() == before.pool()
    assert after.letters == []


def test_a_fact_in_the_wrong_partition_is_refused():
    """Half a group here and half there would be two truths under one key."""
    state = PartitionState(0, 32)
    assert state.apply(record(facts.call(group="somewhere else"), 0)) == "poison"


def buggy(state, fact, position):
    """Raises on one reward, and makes of another what no record can hold."""
    if isinstance(fact, RewardAssigned) and fact.name == "boom":
        raise ZeroDivisionError("bug")
    if isinstance(fact, RewardAssigned) and fact.name == "unwritable":
        fact = replace(fact, name=5)
    return fold(state, fact, position)


def test_a_bug_in_a_fold_parks_one_fact_and_flags_its_step():
    """The rest of the group goes on; nobody trains on the step that was folded wrongly."""
    state, outcomes = applied(
        record(facts.call(call_id="c"), 0),
        record(facts.call(call_id="d"), 1),
        record(facts.reward(call_id="c", name="boom"), 0),
        record(facts.completed(calls=2, reward=1.0), 2),
        fold=buggy,
    )
    log = Log([])
    log.commit(state)
    assert outcomes == ["folded", "folded", "fold_bug", "folded"]
    assert [dict(letter.headers)["claw_reason"] for letter in log.letters] == [b"fold_bug"]
    steps = {one.call_id: one for value in log.pool().values() if isinstance(one := decode(value), StepRecord)}
    assert (steps["c"].reasons, steps["d"].trainable) == (("fold_bug",), True)


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize(
    ("history", "spoiler"),
    [
        ([GOOD], facts.reward(call_id="c", name="boom")),
        ([GOOD, facts.reward(name="one")], facts.reward(name="unwritable")),
    ],
    ids=["fold", "projection"],
)
def test_a_fact_that_breaks_a_fold_makes_one_letter_however_often_it_comes(history, spoiler, committed):
    """Delivered twice, before or after its batch is written: one letter, and the pool of one delivery."""
    once, twice = Log([]), Log([])
    *most, last = Log([*history, spoiler]).facts
    for log, deliveries in ((once, [last]), (twice, [last, last])):
        state, _ = applied(*most, fold=buggy)
        log.commit(state)
        with capture_logs():
            for one in deliveries:
                state.apply(one)
                if committed:
                    log.commit(state)
            log.commit(state)
    assert [dict(letter.headers)["claw_reason"] for letter in twice.letters] == [b"fold_bug"]
    assert (twice.pool(), len(once.letters)) == (once.pool(), 1)


def test_a_fact_that_breaks_the_projection_is_found_and_parked():
    """A batch that cannot be written would stop its partition for ever; the one fact to blame goes, the others stay."""
    rewards = [facts.reward(name=name) for name in ("one", "unwritable")]
    placed = [record(one, offset) for offset, one in enumerate(rewards)]
    state, _ = applied(record(GOOD, 0), *placed, record(facts.completed(), 1), fold=buggy)
    log = Log([])
    with capture_logs():
        log.commit(state)
    (letter,) = log.letters
    assert dict(letter.headers)["claw_reason"] == b"fold_bug"
    (trajectory,) = [one for value in log.pool().values() if isinstance(one := decode(value), TrajectoryRecord)]
    assert (trajectory.status, trajectory.reasons, len(trajectory.rewards)) == ("completed", ("fold_bug",), 1)
    assert len(log.pool()) == 3


def test_a_step_that_was_flagged_stays_so_when_its_batch_is_built_again():
    """Two bugs in one batch: finding the fact that spoils the projection must not lose the flag of the other."""
    rewards = [facts.reward(call_id="c", name="boom"), *[facts.reward(name=name) for name in ("one", "unwritable")]]
    state, _ = applied(record(GOOD, 0), *[record(one, n) for n, one in enumerate(rewards)], fold=buggy)
    log = Log([])
    with capture_logs():
        log.commit(state)
    assert len(log.letters) == 2
    (step,) = [one for value in log.pool().values() if isinstance(one := decode(value), StepRecord)]
    assert step.reasons == ("fold_bug",)


@pytest.mark.parametrize("flushed_before", [False, True])
def test_an_eviction_leaves_no_step(flushed_before):
    """Erased is erased, also when call and eviction come in one batch."""
    log = Log([])
    state, _ = applied(record(GOOD, 0))
    if flushed_before:
        log.commit(state)
        assert {key for topic, key in log.pool() if topic == "datapool.steps"} == {b"g/t/c"}
    state.apply(record(facts.evicted(), 1))
    log.commit(state)
    assert [key for topic, key in log.pool() if topic == "datapool.steps"] == []


def test_a_pool_of_another_fold_version_is_not_continued():
    """Mixing records of two fold versions would agree with neither."""
    position = StreamPosition(partition=0, offsets={}, fold_version=FOLD_VERSION + 1, updated_at_us=0)
    cold = SqliteColdStore()
    cold.write([ColdRow(POSITIONS.name, b"0", b"", encode(position))])
    with pytest.raises(FoldVersionMismatch):
        state_of(0, 1, cold)


@pytest.mark.parametrize("topic", [STEPS, TRAJECTORIES, GROUPS, POSITIONS])
@pytest.mark.parametrize(("start", "error"), [(b"\0\0\1\x8a\x87", RowOfAnotherVersion), (b"damaged", StoreFailed)])
def test_a_stored_row_that_cannot_be_read_is_no_fault_of_a_late_fact(topic, start, error):
    """A newer version wrote it, or it is damaged: the worker ends. Else each late fact of the group would become a dead
    letter, and the position move past it."""
    log = Log([*finished(0), facts.reward("g0", "t", 5.0)])
    *most, late = log.facts
    state = log.recovered()
    for one in most:
        state.apply(one)
    log.commit(state)
    log.rows = {key: start + value[5:] if key[0] == topic.name else value for key, value in log.rows.items()}
    with pytest.raises(error):
        log.recovered().apply(late)


def finished(number):
    group = f"g{number}"
    return [facts.call(group, "t", "c"), facts.completed(group, "t", calls=1, reward=1.0)]


def test_memory_holds_what_is_open_and_a_late_fact_finds_the_rest():
    """Finished groups leave the memory, open ones stay; a reward that comes long after is folded into what was written."""
    history = [event for number in range(50) for event in finished(number)]
    log = Log([*history, facts.call("open", "t", "c"), facts.reward("g3", "t", 5.0, call_id="c")])
    *most, late = log.facts
    state = log.recovered(resting_max=4)
    for one in most:
        state.apply(one)
        log.commit(state)
    assert state.groups.keys() == {"g46", "g47", "g48", "g49", "open"}
    state.apply(late)
    log.commit(state)
    assert "g3" in state.groups
    assert len(state.groups) == 5
    assert log.pool() == log.expected()
    again = log.recovered(resting_max=4)
    assert [one.state.group_id for one in again.waiting()] == ["open"]
    assert again.groups.keys() == {"open"}


def aged(number, at_us):
    group = f"g{number}"
    return facts.call(group, "t", "c", envelope=facts.envelope(at_us=at_us))


def names(found):
    return [group.group_id for group in found]


@pytest.mark.parametrize("restarted", [False, True])
def test_old_groups_are_found_by_age_until_they_are_evicted(restarted):
    """The oldest first, also after a takeover; a stub is not looked at again, a group that lives on is."""
    log = Log([aged(2, 7), aged(1, 5), aged(3, 9)])
    state = log.recovered()
    for one in log.facts:
        state.apply(one)
    assert state.untouched(10**9) == []  # as of the last snapshot
    log.commit(state)
    state = log.recovered() if restarted else state
    assert names(state.untouched(4)) == []
    assert names(state.untouched(7)) == ["g1", "g2"]
    state.apply(record(facts.evicted_group("g1"), 3))
    state.apply(record(facts.call("g2", "u", envelope=facts.envelope(at_us=20)), 4))
    assert names(state.untouched(7)) == []  # something of both waits to be written
    log.commit(state)
    state = log.recovered() if restarted else state
    assert names(state.untouched(7)) == []
    assert names(state.untouched(20)) == ["g3", "g2"]
    state.apply(record(facts.reward("g1", "t", envelope=facts.envelope(at_us=30)), 0))
    log.commit(state)
    assert names(state.untouched(30)) == ["g3", "g2"]  # a late reward of a stub evicts nothing
    assert [decode(row).group_id for row in log.recovered_cold().untouched(0, 9)] == ["g2", "g3"], "no look for a stub"


def test_one_look_for_old_groups_is_bounded():
    """However many are due: a worker has other things to do. Those that are done with make room for the next."""
    log = Log([aged(number, number) for number in range(UNTOUCHED_MAX + 7)])
    state = log.recovered()
    for one in log.facts:
        state.apply(one)
    log.commit(state)
    due = state.untouched(10**9)
    assert len(due) == UNTOUCHED_MAX
    for offset, group in enumerate(due, start=len(log.facts)):
        state.apply(record(facts.evicted_group(group.group_id), offset))
    log.commit(state)
    seen = state.untouched(10**9) + state.untouched(10**9)
    assert names(seen) == 2 * [f"g{number}" for number in range(UNTOUCHED_MAX, UNTOUCHED_MAX + 7)]


@pytest.mark.parametrize("put_away", [False, True])
@pytest.mark.parametrize("flushed_before", [False, True])
def test_an_evicted_group_is_one_row_of_the_pool_and_of_the_cold_store(flushed_before, put_away):
    """Whether its rows were written before, whether the group is in memory when the word comes: all but the stub go."""
    log = Log([*finished(0), *finished(1), facts.reward("g0", "t", call_id="c"), facts.evicted_group("g0")])
    state = log.recovered(resting_max=0 if put_away else 100)
    for one in log.facts:
        state.apply(one)
        if flushed_before:
            log.commit(state)
    log.commit(state)
    assert [key for _, key in log.pool() if b"g0" in key] == [b"g0"]
    assert log.cold.group(b"g0") == [log.pool()[GROUPS.name, b"g0"]]
    assert log.pool() == log.expected()
    again = log.recovered()
    again.apply(record(facts.call("g0", "t", "later"), 0))
    log.commit(again)
    assert [key for _, key in log.pool() if b"g0" in key] == [b"g0"]


def test_a_pool_whose_groups_are_evicted_is_flat_but_for_their_stubs():
    """Ten generations of groups, each evicted when the next one is there: what is alive is as large as at the first."""
    generations = [[finished(10 * number + each) for each in range(10)] for number in range(10)]
    log = Log([fact for groups in generations for facts_of_group in groups for fact in facts_of_group])
    state = log.recovered(resting_max=0)
    sizes, offset = [], len(log.facts)
    for number in range(10):
        for one in log.facts[20 * number : 20 * (number + 1)]:
            state.apply(one)
        log.commit(state)
        alive, stubs = log.pool(), {key for topic, key in log.pool() if int(key[1:].split(b"/")[0]) < 10 * number}
        assert len(stubs) == 10 * number
        sizes.append(sum(len(key) + len(value) for (_, key), value in alive.items() if key not in stubs))
        for each in range(10):
            state.apply(record(facts.evicted_group(f"g{10 * number + each}"), offset := offset + 1))
        log.commit(state)
    assert max(sizes) - min(sizes) <= 10 * 3 * 8, "ids of two digits"
    stub = max(len(key) + len(value) for (_, key), value in log.pool().items())
    assert len(log.pool()) == 100
    assert stub < min(sizes) / 50


def test_an_erased_step_leaves_the_cold_store():
    """A tombstone removes the row here as it does in the pool."""
    log = Log([*finished(0), facts.evicted("g0", "t")])
    state = log.recovered(resting_max=0)
    for one in log.facts:
        state.apply(one)
        log.commit(state)
    assert state.groups == {}
    state.apply(record(facts.reward("g0", "t", call_id="c"), 0))
    log.commit(state)
    assert {key for key in log.pool() if key[0] == "datapool.steps"} == set()


def test_a_quiet_partition_has_nothing_to_commit():
    """No transaction without a fact."""
    state, _ = applied(record(GOOD, 0))
    assert state.pending
    state.take_batch(0)
    assert not state.pending
