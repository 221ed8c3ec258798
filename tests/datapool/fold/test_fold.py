"""The folds against the oracle: any order, any duplication, any restart."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_r1.datapool.errors import UnusableFact
from claw_r1.datapool.fold.fold import flag, fold
from claw_r1.datapool.fold.project import changes, image, project
from claw_r1.datapool.fold.restore import restore
from claw_r1.datapool.fold.state import GroupState
from claw_r1.datapool.fold.validation import PASSED_BY, usable
from claw_r1.schemas.codec import decode, encode
from claw_r1.schemas.events import StepRecord, TrajectoryRecord
from tests import facts, oracle

Placed = list[tuple[facts.Event, facts.FactPosition]]


def folded(log: Placed) -> dict[str, GroupState]:
    states: dict[str, GroupState] = {}
    for fact, position in of_the_pool(log):
        states[fact.group_id] = fold(states.get(fact.group_id), fact, position)
    return states


def of_the_pool(log: Placed) -> Placed:
    """Without what people prefer and write, which whoever folds passes by."""
    return [(fact, position) for fact, position in log if type(fact) not in PASSED_BY]


def encoded(state: GroupState) -> oracle.PoolBytes:
    return {tuple(key): encode(record) for key, record in project(state).items()}


def pool(states: dict[str, GroupState]) -> oracle.PoolBytes:
    return {key: value for state in states.values() for key, value in encoded(state).items()}


def expected(log: Placed) -> oracle.PoolBytes:
    return oracle.pool_of(log)


def restarted(state: GroupState) -> GroupState:
    (again,) = restore(decode(value) for value in encoded(state).values()).values()
    return again


def readable(records: oracle.PoolBytes) -> dict[tuple[str, bytes], facts.Event]:
    return {key: decode(value) for key, value in records.items()}


@given(facts.logs(), st.randoms(use_true_random=False))
def test_any_order_and_duplication_gives_the_records_of_the_oracle(log, random):
    """Records are a function of the set of facts."""
    delivered = [*log, *random.choices(log, k=5)]
    random.shuffle(delivered)
    assert readable(pool(folded(delivered))) == readable(expected(log))


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_one_attempt_of_two_gateways_is_one_call(order):
    """Both completed an attempt 0 in one microsecond: stored twice, the lower offset is the call, the other is nothing."""
    first, second = facts.call(ids=(5,)), facts.call(ids=(6, 7))
    log = list(facts.placed([first, second, second, facts.completed(calls=1, reward=1.0)]))
    records = pool(folded([log[number] for number in order]))
    assert records == expected(log)
    (step,) = [record for record in readable(records).values() if isinstance(record, StepRecord)]
    assert (step.attempts, step.response_length, step.position) == ((0,), 1, log[0][1])
    (trajectory,) = [record for record in readable(records).values() if isinstance(record, TrajectoryRecord)]
    assert (trajectory.calls, trajectory.trainable_calls, trajectory.ready) == (("c",), 1, True)


SAME = facts.envelope("same")
COLLISIONS = {
    "opened": [
        facts.opened(envelope=SAME, deadline_us=at, expected_size=size) for at, size in ((5, 2), (9, 2), (9, None))
    ],
    "closed": [facts.closed(members=members, envelope=SAME) for members in (["t"], ["t", "u"], [])],
    "started": [
        facts.started(envelope=SAME, task=task, tags=tags) for task, tags in ((None, ("x",)), ("1", ()), ("2", ()))
    ],
    "completed": [
        facts.completed(envelope=SAME, calls=calls, reward=value) for calls, value in ((1, 0.0), (None, -0.0), (2, 1.0))
    ],
    "abandoned": [facts.abandoned(envelope=SAME, reason=reason) for reason in ("idle", "deadline", "asked")],
    "evicted": [facts.evicted(envelope=SAME, reason=reason) for reason in ("retention", "asked", "x")],
    "group evicted": [facts.evicted_group(envelope=SAME, reason=reason) for reason in ("retention", "asked", "x")],
    "opened and evicted": [
        *(facts.opened(envelope=SAME, ordinal=at, task=task) for at, task in ((1, "z"), (2, "a"))),
        facts.evicted_group(),
    ],
    "rewards": [facts.reward(envelope=SAME, value=value, call_id="c") for value in (0.0, -0.0, -1.0)],
    "taken back or failed": [
        facts.reward(envelope=SAME, value=None, source="judge", name="style", call_id="c"),
        *(facts.gave_up(envelope=SAME, reason=reason, call_id="c") for reason in ("deadline", "crashed")),
    ],
    "curated": [
        facts.curated(envelope=SAME, who=who, **given)
        for who, given in (("p", {"trainable": False}), ("q", {"trainable": True}), ("r", {"undoes": ("other",)}))
    ],
    "scored": [
        facts.curated(envelope=SAME, scores=scores)
        for scores in ({"b@1": -0.0, "a@1": 1.0}, {"a@1": 1.0, "b@1": 0.0}, {"a@1": None})
    ],
    "written in another order": [
        facts.curated(envelope=SAME, scores=dict.fromkeys(names, 0.5)) for names in (("a@1", "b@1"), ("b@1", "a@1"))
    ],
}


@pytest.mark.parametrize("kind", COLLISIONS)
def test_one_event_id_with_two_contents_has_one_outcome_in_any_order(kind):
    """A repeated request keeps its event id and may say something else: last writer must not win."""
    log = facts.placed([facts.call(), *COLLISIONS[kind]])
    (oracles,) = {tuple(expected(list(order)).items()) for order in itertools.permutations(log)}
    for order in itertools.permutations(log):
        assert readable(pool(folded(list(order)))) == readable(dict(oracles))
        assert pool(folded(list(order))) == dict(oracles)


@given(facts.logs(), st.data())
def test_a_state_read_back_from_its_records_folds_on_as_if_nothing_happened(log, data):
    """restore is the exact inverse of project, at any moment."""
    states: dict[str, GroupState] = {}
    for fact, position in of_the_pool(log):
        state = fold(states.get(fact.group_id), fact, position)
        if data.draw(st.booleans(), label="restart"):
            again = restarted(state)
            assert again == state
            state = again
        states[fact.group_id] = state
    assert pool(states) == expected(log)


@given(facts.logs(), st.data())
def test_writing_differences_adds_up_to_the_whole(log, data):
    """What `changes` writes over time, tombstones removing, is what `project` says at the end."""
    states: dict[str, GroupState] = {}
    images = {}
    written: oracle.PoolBytes = {}
    log = of_the_pool(log)
    for fact, position in log:
        states[fact.group_id] = fold(states.get(fact.group_id), fact, position)
        if data.draw(st.booleans(), label="flush") or (fact, position) == log[-1]:
            for name, state in states.items():
                images[name], rows = changes(images.get(name), state)
                written |= {tuple(key): row and row.value for key, row in rows.items()}
            if data.draw(st.booleans(), label="restart"):
                states = {name: restarted(state) for name, state in states.items()}
                images = {name: image(state) for name, state in states.items()}
    assert {key: value for key, value in written.items() if value is not None} == expected(log)


@given(facts.logs())
def test_nothing_new_writes_nothing_but_the_group(log):
    """A flush costs what changed: an unchanged trajectory writes no row."""
    for state in folded(log).values():
        _, rows = changes(image(state), state)
        assert {key.topic for key in rows} == {"datapool.groups"}


@pytest.mark.parametrize(
    ("fact", "reason"),
    [
        (facts.reward(value=float("nan")), "reward_not_finite"),
        (facts.reward(value=float("inf")), "reward_not_finite"),
        (facts.reward(value=1.1e30), "reward_too_large"),
        (facts.completed(reward=-1.1e30), "reward_too_large"),
        (facts.reward(step_index=-1), "step_index_negative"),
        (facts.reward(name="completion"), "reward_of_completion"),
        (facts.gave_up(source="agent", name="completion"), "reward_of_completion"),
        (facts.gave_up(call_id="c" * 4097), "id_too_long"),
        (facts.preferred(), "wrong_type"),
        (facts.edited(), "wrong_type"),
        (facts.completed(reward=float("nan")), "reward_not_finite"),
        (facts.completed(status="open"), "completion_status"),
        (facts.started(idle_s=float("nan")), "idle_not_finite"),
        (facts.curated(quality=float("nan")), "quality_not_finite"),
        (facts.call(call_id="c" * 4097), "id_too_long"),
        (facts.completed(trajectory="t" * 4097), "id_too_long"),
        (facts.opened("g" * 4097), "id_too_long"),
        (facts.changed_envelope(facts.started(), event_id=""), "event_id_missing"),
        (facts.curated(scores={"a@1": 1.0, "b@1": float("inf")}), "score_not_finite"),
        (StepRecord(group_id="g", trajectory_id="t", call_id="c"), "wrong_type"),
    ],
)
def test_a_contradiction_is_refused(fact, reason):
    """Refusal is a property of the fact alone; the oracle refuses the same ones."""
    with pytest.raises(UnusableFact) as refused:
        usable(fact)
    assert refused.value.reason == reason
    assert not oracle.sound(fact)


def test_a_flag_survives_a_restart_and_keeps_the_step_out_of_training():
    """A step whose fact broke the fold is not trainable, in its record and after a restore."""
    state = folded(facts.placed([facts.call(), facts.completed()]))["g"]
    state = flag(state, facts.reward(call_id="c"))
    step = next(record for record in project(state).values() if isinstance(record, StepRecord))
    assert (step.trainable, step.reasons) == (False, ("fold_bug",))
    assert restarted(state) == state
