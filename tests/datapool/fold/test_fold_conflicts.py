"""The conflicts that the pool settles, one by one: the table of `datapool/__init__.py` as examples."""

import itertools

import pytest

from claw_r1.datapool.fold.fold import fold
from claw_r1.datapool.fold.project import changes, image, project
from claw_r1.datapool.fold.restore import restore
from claw_r1.schemas.arrays import pack_floats
from claw_r1.schemas.codec import encode
from claw_r1.schemas.events import GroupRecord, Integrity, Sampling, StepRecord, TrajectoryRecord, VersionSpan
from tests import facts
from tests.facts import PLAIN


class Pool:
    """Records of one group after a list of facts, in the order of the log."""

    def __init__(self, *events):
        self.state = None
        for fact, position in facts.placed(events):
            self.state = fold(self.state, fact, position)
        records = project(self.state).values()
        assert restore(records) == {self.state.group_id: self.state}, "each example can be read back from its records"
        self.steps = {one.call_id: one for one in records if isinstance(one, StepRecord)}
        self.trajectories = {one.trajectory_id: one for one in records if isinstance(one, TrajectoryRecord)}
        (self.group,) = [one for one in records if isinstance(one, GroupRecord)]

    @property
    def t(self):
        return self.trajectories["t"]


def written_by(fact, state):
    """Ids of the steps that are written when one more fact meets a state that is written already."""
    after = fold(state, fact, facts.FactPosition(topic="claw.calls", partition=0, offset=99))
    rows = changes(image(state), after)[1].values()
    return {row.record.call_id for row in rows if isinstance(row.record, StepRecord)}


def test_a_plain_episode_is_ready():
    """One call, one completion with reward: data."""
    pool = Pool(facts.call(), facts.completed(calls=1, reward=0.5))
    assert pool.steps["c"].trainable
    assert (pool.t.ready, pool.t.return_total, pool.t.policy_run_id, pool.t.max_version) == (True, 0.5, "run", 3)
    assert (pool.group.ready, pool.group.reward_mean, pool.group.reward_std) == (True, 0.5, None)


def test_a_reward_before_its_call_waits_without_position():
    """The step exists, is not trainable, and gets its call later."""
    reward = facts.reward(call_id="c")
    early = Pool(reward).steps["c"]
    assert (early.position, early.reasons, early.reward_total) == (None, ("no_call",), 1.0)
    assert Pool(reward, facts.call()).steps["c"].trainable


def test_a_reward_for_nobody_makes_no_member():
    """A wrong trajectory id must not hold up its group."""
    pool = Pool(facts.call(), facts.completed(reward=1.0), facts.reward(trajectory="typo"))
    assert pool.trajectories["typo"].reasons == ("no_trainable_call", "open", "unknown")
    assert ([one.trajectory_id for one in pool.group.members], pool.group.ready) == (["t"], True)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 2, 0)])
def test_the_highest_revision_fills_a_slot_then_the_later_word(order):
    """Two judges of one slot: order of arrival says nothing, and an id only where both spoke in one microsecond."""
    rewards = [
        facts.reward(call_id="c", value=1.0, revision=1, envelope=facts.envelope("z", at_us=1)),
        facts.reward(call_id="c", value=2.0, revision=1, envelope=facts.envelope("b", at_us=2)),
        facts.reward(call_id="c", value=3.0, revision=1, envelope=facts.envelope("a", at_us=2)),
        facts.reward(call_id="c", value=4.0, revision=0, envelope=facts.envelope("c", at_us=9)),
    ]
    slots = Pool(facts.call(), *(rewards[n] for n in order)).steps["c"].rewards
    assert [(slot.value, slot.occurred_at_us, slot.event_id) for slot in slots] == [(2.0, 2, "b")]


BY_A_SCORER = {"source": "rule", "name": "exact", "verdict": facts.verdict()}
CLAIM = {"source": "rule", "name": "exact", "revision": 1_000_000_000}
SCORED = {
    "value": (facts.reward(value=0.25, revision=16, **BY_A_SCORER), 0.25),
    "taken back": (facts.reward(value=None, revision=32, **BY_A_SCORER), None),
    "given up": (facts.gave_up(revision=0, **BY_A_SCORER), None),
}


@pytest.mark.parametrize("kind", SCORED)
@pytest.mark.parametrize("claimed", [99.0, None])
def test_no_claim_outranks_a_verdict_in_its_slot(kind, claimed):
    """Whatever its revision and time: who knows an agent's base URL writes what he likes, but not a scorer's word."""
    said, stands = SCORED[kind]
    claim = facts.reward(value=claimed, envelope=facts.envelope(at_us=9), **CLAIM)
    for order in ((said, claim), (claim, said)):
        (slot,) = Pool(facts.call(), *order).t.rewards
        assert (slot.value, slot.verdict) == (stands, True)


def test_a_claim_by_index_does_not_outrank_the_verdict_on_that_call():
    """Both name one subject."""
    verdict = facts.reward(call_id="c", value=0.25, **BY_A_SCORER)
    assert Pool(facts.call(), verdict, facts.reward(step_index=0, value=99.0, **CLAIM)).steps["c"].reward_total == 0.25


def test_of_verdicts_the_higher_revision_counts_and_claims_stand_where_there_is_none():
    """A higher version or generation replaces a lower one, as ever; a slot without a scorer is whose word it is."""
    verdicts = [
        facts.reward(value=value, revision=revision, **BY_A_SCORER) for revision, value in ((16, 1.0), (1016, 2.0))
    ]
    assert Pool(facts.call(), *verdicts[::-1]).t.outcome == 2.0
    assert Pool(facts.call(), facts.reward(value=99.0, **CLAIM)).t.outcome == 99.0


def said_twice(make, first, second):
    """The second is the later word; its id is the lower one, as a hash is half the time."""
    return [make(envelope=facts.envelope("z", at_us=1), **first), make(envelope=facts.envelope("a", at_us=2), **second)]


CORRECTED = {
    "reward": (said_twice(facts.reward, {"value": 1.0}, {"value": 2.0}), lambda pool: pool.t.outcome, 2.0),
    "reward by index": (
        said_twice(facts.reward, {"call_id": "c", "value": 1.0}, {"step_index": 0, "value": 2.0}),
        lambda pool: pool.t.return_total,
        2.0,
    ),
    "completion": (
        said_twice(facts.completed, {"reward": 1.0, "calls": 3}, {"reward": 2.0, "calls": 1}),
        lambda pool: (pool.t.outcome, pool.t.calls_expected, pool.t.status_us, pool.t.ready),
        (2.0, 1, 2, True),
    ),
    "opening": (
        said_twice(facts.opened, {"expected_size": 4, "task": "1"}, {"expected_size": 8}),
        lambda pool: (pool.group.expected_size, pool.group.task, pool.group.declared_us),
        (8, None, 2),
    ),
    "registration": (
        said_twice(facts.started, {"task": "1", "tags": ("x",)}, {"task": "2"}),
        lambda pool: (pool.t.task, pool.t.tags, pool.t.registered_us),
        ("2", (), 2),
    ),
    "closing": (
        said_twice(facts.closed, {"members": ["u"]}, {"members": ["t"]}),
        lambda pool: (pool.group.closed_members, pool.group.closed_us),
        (("t",), 2),
    ),
    "score": (
        said_twice(facts.curated, {"quality": 0.25}, {"quality": 0.5}),
        lambda pool: pool.steps["c"].curation.quality,
        0.5,
    ),
}


@pytest.mark.parametrize("kind", CORRECTED)
def test_the_later_word_wins_whatever_its_id(kind):
    """Whoever says a thing again corrects it, in whatever order the two words arrive."""
    words, shown, expected = CORRECTED[kind]
    for order in (words, words[::-1]):
        assert shown(Pool(facts.call(), *order)) == expected


REVISED = {
    "completion": (
        [facts.completed(reward=2.0, revision=1), facts.completed(reward=1.0, envelope=facts.envelope(at_us=9))],
        lambda pool: (pool.t.outcome, pool.t.status_revision),
        (2.0, 1),
    ),
    "failure": (
        [facts.completed(status="failed", revision=1), facts.completed(envelope=facts.envelope(at_us=9))],
        lambda pool: pool.t.status,
        "failed",
    ),
    "opening": (
        [facts.opened(expected_size=8, revision=1), facts.opened(expected_size=4, envelope=facts.envelope(at_us=9))],
        lambda pool: (pool.group.expected_size, pool.group.declared_revision),
        (8, 1),
    ),
    "registration": (
        [facts.started(task="2", revision=1), facts.started(task="1", envelope=facts.envelope(at_us=9))],
        lambda pool: (pool.t.task, pool.t.registered_revision),
        ("2", 1),
    ),
}


@pytest.mark.parametrize("kind", REVISED)
def test_a_higher_revision_outranks_any_time(kind):
    """The clock of the gateway that took the correction may be behind; a failure corrects a completion by it, too."""
    words, shown, expected = REVISED[kind]
    for order in (words, words[::-1]):
        assert shown(Pool(facts.call(), *order)) == expected


def test_an_eviction_outranks_every_revision():
    """And whoever says that a trajectory is over, by whatever revision, says more than nobody."""
    assert Pool(facts.completed(revision=9), facts.evicted(), facts.completed(revision=10)).t.status == "evicted"
    assert Pool(facts.call(), facts.completed(revision=-1)).t.status == "completed"


@pytest.mark.parametrize("empty", [{"value": None}, None], ids=["taken back", "failed"])
def test_a_slot_without_a_value_is_no_reward(empty):
    """Its sum, the completion's count of rewards and a failure's outcome are as if nobody had spoken."""
    slot = {"source": "judge", "name": "style", "revision": 1}
    word = facts.gave_up(**slot) if empty is None else facts.reward(**slot, **empty)
    judged = facts.reward(source="judge", name="style", value=1.0)
    before = Pool(facts.call(), facts.completed(calls=1, rewards=1, status="failed"), judged)
    after = Pool(facts.call(), facts.completed(calls=1, rewards=1, status="failed"), judged, word)
    assert (before.t.ready, before.t.return_total) == (True, 1.0)
    assert (after.t.outcome, after.t.return_total) == (None, None)
    assert after.t.reasons == ("failed_without_outcome", "rewards_missing")
    assert [(each.value, each.failed) for each in after.t.rewards] == [(None, None if empty else "deadline")]


def test_a_slot_that_was_taken_back_can_be_filled_again():
    """A later word of the slot counts, after a withdrawal and after a failure."""
    words = [
        facts.reward(source="judge", name="style", value=value, revision=revision)
        for revision, value in ((0, 1.0), (1, None), (3, 0.5))
    ]
    assert Pool(facts.call(), *words, facts.gave_up(revision=2)).t.return_total == 0.5


def test_a_reward_by_index_that_was_taken_back_by_id_counts_no_more():
    """Both name one subject: the higher revision empties the slot of it."""
    by_index = facts.reward(step_index=0, value=1.0)
    assert Pool(facts.call(), by_index, facts.reward(call_id="c", value=None, revision=1)).t.return_total is None


def test_a_scorer_that_gave_up_makes_no_member():
    """Like a reward of a trajectory that nobody started."""
    pool = Pool(facts.call(), facts.completed(), facts.gave_up(trajectory="typo"))
    assert pool.trajectories["typo"].reasons == ("no_trainable_call", "open", "unknown")
    assert [one.trajectory_id for one in pool.group.members] == ["t"]


def test_slots_of_different_sources_add_up_exactly():
    """Sums do not depend on order: 1e16 + 1 - 1e16 is 1."""
    values = {"one": 1e16, "two": 1.0, "three": -1e16}
    pool = Pool(facts.call(), *(facts.reward(source=source, value=value) for source, value in values.items()))
    assert pool.t.outcome == pool.t.return_total == 1.0


def test_a_reward_by_index_moves_when_an_earlier_call_turns_up():
    """The index counts over the calls as they are known now; the step that loses it is written again."""
    late, reward, early = (
        facts.call(call_id="late", received_us=9),
        facts.reward(step_index=0),
        facts.call(call_id="early", received_us=1),
    )
    before, after = Pool(late, reward), Pool(late, reward, early)
    assert before.steps["late"].reward_total == 1.0
    assert (after.steps["early"].reward_total, after.steps["late"].reward_total, after.t.return_total) == (
        1.0,
        None,
        1.0,
    )
    assert written_by(early, before.state) == {"late", "early"}


def test_a_reward_by_index_and_one_by_id_are_one_slot():
    """The same source and name about the same call is one judgement, not two."""
    pool = Pool(facts.call(), facts.reward(step_index=0, value=1.0), facts.reward(call_id="c", value=5.0, revision=1))
    assert (pool.steps["c"].reward_total, len(pool.steps["c"].rewards)) == (5.0, 2)


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1)])
@pytest.mark.parametrize("numbers", [(0, 1), (1, 0), (0, 0)])
def test_the_capture_received_last_is_the_call_and_its_lowest_offset_the_position(order, numbers):
    """A retry is stored, and trained once: the client went on with the last reply that it got, whatever its number is.

    SDKs count from 0 again when a user repeats a call under its key, so several gateways may have an attempt 0.
    """
    lost = facts.call(attempt=numbers[0], ids=(5,), received_us=1)
    kept = facts.call(attempt=numbers[1], ids=(6, 7), received_us=2)
    pool = Pool(*([lost, kept, kept][n] for n in order))
    step = pool.steps["c"]
    first = min(order.index(1), order.index(2))
    assert (step.attempt, step.position.offset, step.response_length) == (numbers[1], first, 2)
    assert step.attempts == tuple(sorted(set(numbers)))
    assert (pool.t.calls, pool.t.trainable_calls) == (("c",), 1)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_reply_that_is_repeated_is_what_the_agent_went_on_with(order):
    """Tries 0 at gateway A, 1 at B, 2 at A again: A repeats what it has of try 0, captured once more as received now."""
    tries = [
        facts.call(attempt=0, ids=(5,), received_us=1),
        facts.call(attempt=1, ids=(6, 7), received_us=2),
        facts.call(attempt=2, ids=(5,), received_us=3),
    ]
    step = Pool(*(tries[n] for n in order)).steps["c"]
    assert (step.attempt, step.attempts, step.response_length, step.trainable) == (2, (0, 1, 2), 1, True)


def test_a_repeated_call_keeps_its_place():
    """An index means the call that it meant when the agent said it: a reply that is captured again moves nothing."""
    calls = [facts.call(call_id="a", received_us=1), facts.call(call_id="b", received_us=2)]
    again = facts.call(call_id="a", attempt=1, received_us=3)
    reward = facts.reward(step_index=0)
    for order in itertools.permutations([*calls, again, reward]):
        pool = Pool(*order)
        assert (pool.t.calls, pool.steps["a"].attempt, pool.steps["a"].reward_total) == (("a", "b"), 1, 1.0)


@pytest.mark.parametrize(
    ("keep", "ids", "reasons"),
    [(3, (6, 6), ()), (4, (6, 6), ("parent_missing",)), (5, (5, 5), ()), (6, (5, 5), ("parent_missing",))],
    ids=["the prompt only", "of the response, too", "of a response with equal ids", "more than it has"],
)
def test_what_is_written_against_a_superseded_attempt_is_whole_where_its_ids_are(keep, ids, reasons):
    """A chain breaks over ids that are not there, and over nothing else."""
    lost = facts.call(call_id="a", ids=(5, 5), received_us=1)
    kept = facts.call(call_id="a", ids=ids, received_us=2, response_logprobs=pack_floats([-0.25] * len(ids)))
    edge = facts.edge((1,), base="a", keep=keep)
    child = facts.call(call_id="b", received_us=3, prompt=edge, base_digest=facts.written_against(lost, keep))
    for order in itertools.permutations([lost, kept, child]):
        assert Pool(*order).steps["b"].reasons == reasons


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_a_completed_attempt_counts_before_a_later_one_that_broke_off(order):
    """Nobody goes on with half a reply: the retry that was given up does not take the place of the reply that came."""
    attempts = [facts.call(attempt=0), facts.call(attempt=1, ids=(6,)), facts.call(attempt=2, status="aborted")]
    step = Pool(*(attempts[n] for n in order)).steps["c"]
    assert (step.attempt, step.attempts, step.trainable) == (1, (0, 1, 2), True)
    broken = Pool(attempts[2], facts.call(attempt=3, status="aborted")).steps["c"]
    assert (broken.attempt, broken.reasons) == (3, ("status_aborted",))


def test_completed_twice_at_once_the_higher_id_counts():
    """Counts come from one completion, not from a mixture."""
    pool = Pool(
        facts.call(),
        facts.completed(calls=3, reward=1.0, envelope=facts.envelope("b")),
        facts.completed(calls=1, reward=0.0, envelope=facts.envelope("a")),
    )
    assert (pool.t.calls_expected, pool.t.return_total, pool.t.reasons) == (3, 1.0, ("calls_missing",))


@pytest.mark.parametrize("late", ["a", "z"])
def test_a_completion_counts_as_a_whole_with_its_reward(late):
    """The failure that does not count gives no reward either, whichever was said last."""
    both = [
        facts.completed(calls=1, rewards=0, envelope=facts.envelope("m")),
        facts.completed(status="failed", calls=5, reward=-1.0, envelope=facts.envelope(late)),
    ]
    for order in (both, both[::-1]):
        t = Pool(facts.call(), *order).t
        assert (t.status, t.calls_expected, t.rewards, t.return_total) == ("completed", 1, (), None)


def test_the_completions_reward_is_a_slot_of_its_own():
    """It adds up with what the agent judged as `outcome`, and is none of the rewards that were counted."""
    t = Pool(facts.call(), facts.reward(value=0.3), facts.completed(rewards=1, reward=1.0)).t
    assert [(slot.source, slot.name, slot.value) for slot in t.rewards] == [
        ("agent", "completion", 1.0),
        ("agent", "outcome", 0.3),
    ]
    assert (t.ready, t.outcome, t.return_total) == (True, 1.3, 1.3)
    by_index = Pool(facts.call(), facts.reward(step_index=0, name="completion"), facts.completed(rewards=1)).t
    assert (by_index.ready, by_index.return_total, by_index.outcome) == (True, 1.0, None)


def test_a_completion_outranks_being_abandoned_whichever_comes_first():
    """A slow agent that finishes is data."""
    both = [facts.abandoned(), facts.completed(reward=1.0)]
    assert {Pool(facts.call(), *order).t.status for order in (both, both[::-1])} == {"completed"}


def test_a_completion_without_calls_is_not_ready():
    """Nothing to train on."""
    assert Pool(facts.completed(reward=1.0)).t.reasons == ("no_trainable_call",)


def test_a_call_that_the_completion_did_not_count_keeps_the_trajectory_from_training():
    """Its reply was perhaps never used (a retry without a key): nobody knows whether the reward is for it, too."""
    orphan = [facts.completed(calls=1), facts.call(), facts.call(call_id="d")]
    for order in itertools.permutations(orphan):
        assert (Pool(*order).t.reasons, Pool(*order).t.calls) == (("calls_uncounted",), ("c", "d"))
    assert Pool(*orphan, facts.completed(calls=2, envelope=facts.envelope(at_us=1))).t.ready
    assert Pool(facts.completed(), *orphan[1:]).t.ready, "who does not count is taken at what the log holds"


def test_choices_of_one_call_are_counted_once():
    """An agent that asks for n choices counts one call."""
    pool = Pool(facts.call(), facts.call(call_id="c.1"), facts.completed(calls=2))
    assert (pool.t.reasons, pool.t.calls) == (("calls_missing",), ("c", "c.1"))
    assert Pool(facts.call(), facts.call(call_id="c.1"), facts.completed(calls=1)).t.ready
    assert Pool(facts.call(call_id="c.2"), facts.call(call_id="c.10"), facts.completed(calls=1)).t.ready


def test_an_index_counts_what_a_completion_counts():
    """A call with several choices has one index, and its reward goes to the first choice that is there."""
    choices = [facts.call(call_id=name, received_us=1) for name in ("a.10", "a.2", "a")]
    rewards = [facts.reward(step_index=0, value=1.0), facts.reward(step_index=1, value=2.0)]
    history = [facts.call(call_id="b", received_us=2), *rewards, facts.completed(calls=2)]
    pool = Pool(*choices, *history)
    totals = {name: step.reward_total for name, step in pool.steps.items()}
    assert totals == {"a": 1.0, "a.2": None, "a.10": None, "b": 2.0}
    assert (pool.t.ready, pool.t.return_total) == (True, 3.0)
    without = Pool(*choices[:2], *history)
    assert (without.steps["a.2"].reward_total, without.steps["a.10"].reward_total, without.t.ready) == (1.0, None, True)
    assert written_by(choices[2], without.state) == {"a", "a.2"}


def test_rewards_beyond_those_counted_are_welcome():
    """Reward workers and people judge what the agent has completed."""
    t = Pool(facts.call(), facts.completed(rewards=0), facts.reward(source="judge"), facts.reward(call_id="c")).t
    assert (t.ready, t.return_total) == (True, 2.0)


def test_as_many_rewards_as_counted_beside_the_completions_own():
    """The completion's reward does not stand in for one that is still on its way."""
    history = [facts.call(), facts.completed(rewards=1, reward=1.0)]
    assert Pool(*history).t.reasons == ("rewards_missing",)
    assert Pool(*history, facts.reward(call_id="c", source="env")).t.ready


def test_a_failure_is_data_only_with_an_outcome():
    """Somebody has to say what the failure was worth; what its calls earned before it says nothing of that."""
    failed = [facts.call(), facts.completed(status="failed")]
    for more in ([], [facts.reward(call_id="c")], [facts.reward(step_index=0)]):
        assert Pool(*failed, *more).t.reasons == ("failed_without_outcome",)
    assert Pool(*failed, facts.reward(source="judge")).t.ready
    assert Pool(facts.call(), facts.completed(status="failed", reward=0.0)).t.ready


def test_an_evicted_trajectory_stays_away_whatever_comes_later():
    """Erasure is absorbing; its group goes on without it."""
    pool = Pool(
        facts.call(),
        facts.evicted(),
        facts.reward(),
        facts.completed(reward=1.0),
        facts.call("g", "u"),
        facts.completed("g", "u"),
    )
    assert (pool.t.status, pool.t.reason, pool.t.calls, pool.t.rewards) == ("evicted", "asked", (), ())
    assert set(pool.steps.values()) == {pool.steps["c"]}
    assert pool.steps["c"].trajectory_id == "u"
    assert pool.group.ready


def test_an_evicted_group_is_one_stub_whatever_comes_before_and_after():
    """Erasure is absorbing; the stub says whose the group was and its place in its order, and nothing else of it."""
    opening = facts.opened(expected_size=2, task="1", deadline_us=9, ordinal=7, tags=("x",), agent="one")
    told = [opening, facts.call(), facts.reward(), facts.closed(members=["t"]), facts.completed(reward=1.0)]
    gone = facts.evicted_group(envelope=facts.envelope(at_us=5), reason="old")
    pools = [Pool(*told[:at], gone, *told[at:]) for at in range(len(told) + 1)]
    assert len({encode(pool.group) for pool in pools}) == 1
    (pool, *_) = pools
    assert (pool.steps, pool.trajectories) == ({}, {})
    assert (pool.group.reasons, pool.group.evicted_reason, pool.group.evicted_us) == (("evicted",), "old", 5)
    assert (pool.group.declared, pool.group.ordinal, pool.group.run_id) == (True, 7, "run")
    assert (pool.group.task, pool.group.members, pool.group.closed, pool.group.tags) == (None, (), False, ())
    later = facts.evicted_group(envelope=facts.envelope(at_us=6))
    assert Pool(*told, gone, later).group.evicted_us == Pool(later, *told, gone).group.evicted_us == 6


def test_which_opening_counts_is_the_same_before_and_after_an_eviction():
    """Two openings of one event id and moment: what the stub keeps decides first."""
    same = facts.envelope("o")
    one, other = facts.opened(envelope=same, ordinal=1, task="z"), facts.opened(envelope=same, ordinal=2, task="a")
    gone = facts.evicted_group()
    assert Pool(one, other, gone).group.ordinal == Pool(gone, one, other).group.ordinal == 2


def test_a_declared_group_waits_for_its_size_and_for_open_members():
    """Ready is: as many ready members as declared, nobody open."""
    one = [facts.opened(expected_size=2), facts.call(), facts.completed(reward=1.0)]
    assert Pool(*one).group.reasons == ("members_missing",)
    two = [*one, facts.call("g", "u"), facts.completed("g", "u", reward=0.0)]
    assert (Pool(*two).group.ready, Pool(*two).group.reward_mean) == (True, 0.5)
    assert Pool(*two, facts.started("g", "v")).group.reasons == ("members_open",)
    three = [*two, facts.call("g", "v"), facts.completed("g", "v", reward=0.0)]
    assert (Pool(*three).group.ready, len(Pool(*three).group.members)) == (True, 3)


def test_declared_late_or_twice_the_later_word_wins():
    """A group may be declared after its calls; two declarations do not mix."""
    pool = Pool(
        facts.call(),
        facts.opened(expected_size=4, task="1", envelope=facts.envelope("b", at_us=2)),
        facts.opened(expected_size=8, envelope=facts.envelope("c", at_us=1)),
    )
    assert (pool.group.expected_size, pool.group.task, pool.group.declared_event_id) == (4, "1", "b")


JUDGED_BY_ANOTHER_RUN = {
    "reward": facts.reward(envelope=facts.envelope(run_id="judges")),
    "failed scorer": facts.gave_up(envelope=facts.envelope(run_id="judges")),
    "curation": facts.curated(envelope=facts.envelope(run_id="judges")),
    "completion": facts.completed(envelope=facts.envelope(run_id="judges")),
    "closing": facts.closed(members=["t"], envelope=facts.envelope(run_id="judges")),
    "abandonment": facts.abandoned(envelope=facts.envelope(run_id="judges")),
}


@pytest.mark.parametrize("kind", JUDGED_BY_ANOTHER_RUN)
def test_who_judges_a_group_does_not_take_it_from_its_run(kind):
    """Whatever name a judge's own run has: it speaks about what others played."""
    word = JUDGED_BY_ANOTHER_RUN[kind]
    for facts_before in ([facts.opened(), facts.call()], [facts.call()], [facts.opened()]):
        pool = Pool(*facts_before, word)
        assert pool.group.run_id == "run"
        assert [one.run_id for one in pool.trajectories.values() if one.calls] in ([], ["run"])
    assert Pool(word).group.run_id is None


def test_a_group_is_of_the_run_that_opened_it_and_else_of_that_which_played():
    """A call's run decides only where no opening, and of a trajectory no registration, names one."""
    played = facts.call(envelope=facts.envelope(run_id="a"))
    also = facts.call(call_id="d", envelope=facts.envelope(run_id="b"))
    assert (Pool(also, played).group.run_id, Pool(also, played).t.run_id) == ("a", "a")
    assert Pool(played, facts.opened(envelope=facts.envelope(run_id="z"))).group.run_id == "z"
    assert Pool(played, facts.opened(envelope=facts.envelope(run_id=None))).group.run_id == "a"
    assert Pool(played, facts.started(envelope=facts.envelope(run_id="z"))).t.run_id == "z"
    assert Pool(played, facts.started(envelope=facts.envelope(run_id=None))).t.run_id == "a"


def test_a_group_that_two_runs_opened_is_of_the_later_one_as_a_whole():
    """Two gateways may let both in; what counts is the later word, in any order of arrival."""
    words = [
        facts.opened(expected_size=4, envelope=facts.envelope("z", at_us=1, run_id="a")),
        facts.opened(expected_size=8, envelope=facts.envelope("a", at_us=2, run_id="b")),
    ]
    for order in (words, words[::-1]):
        assert (Pool(*order).group.run_id, Pool(*order).group.expected_size) == ("b", 8)


TITLE, WORK = facts.call(call_id="title"), facts.call(call_id="work", has_tools=True, received_us=9)


def tags_of(*events):
    return {name: step.tags for name, step in Pool(*events).steps.items()}


def test_a_call_without_the_tools_of_its_trajectory_is_a_side_call():
    """In whatever order they came or were received; where nobody has tools, none is, and other trajectories say nothing."""
    for order in ((TITLE, WORK), (WORK, TITLE)):
        assert tags_of(*order) == {"title": ("kind:side",), "work": ()}
    assert tags_of(TITLE, facts.call(trajectory="u", call_id="work", has_tools=True)) == {"title": (), "work": ()}
    assert tags_of(TITLE, facts.reward(call_id="early")) == {"title": (), "early": ()}


@pytest.mark.parametrize(
    ("said", "tags"),
    [
        ({"call_kind": "main"}, ()),
        ({"call_kind": "side"}, ("kind:side",)),
        ({"call_kind": "subagent", "has_tools": True}, ("kind:subagent",)),
        ({"tags": ("kind:main", "x"), "call_kind": "side"}, ("x",)),
        ({"tags": ("kind:side", "x"), "has_tools": True}, ("x", "kind:side")),
        ({"call_kind": "no kind of ours"}, ("kind:side",)),
    ],
)
def test_what_a_client_says_of_its_call_counts_first(said, tags):
    """By the field or by a tag of its own; only what nobody said is told from the tools of others."""
    assert tags_of(WORK, facts.call(call_id="title", **said))["title"] == tags


def test_the_first_call_with_tools_writes_only_the_steps_that_change():
    """A title and its like; not those of which the client said what they are, nor those with tools."""
    state = Pool(TITLE, facts.call(call_id="named", call_kind="main"), facts.call("g", "u", "other")).state
    assert written_by(WORK, state) == {"title", "work"}
    assert written_by(facts.call(call_id="late"), Pool(TITLE, WORK).state) == {"late"}


def test_a_retry_with_other_tools_changes_what_its_trajectory_is():
    """What counts is the capture that counts."""
    again = facts.call(call_id="work", attempt=1, received_us=10)
    assert tags_of(TITLE, WORK, again) == {"title": (), "work": ()}


@pytest.mark.parametrize("word", ["prompt_mismatch", "ids_malformed", "fold_bug", "parent_missing"])
def test_a_word_of_the_pools_own_from_a_capture_changes_nothing_at_a_restart(word):
    """Whoever captured it may call what is missing as he likes: calls above it stay whole, and a sound capture counts."""
    base = facts.call(call_id="base", integrity=Integrity(complete=False, missing=(word,)))
    above = facts.call(call_id="d", prompt=facts.edge(base="base", keep=6), base_digest=facts.written_against(base, 6))
    pool = Pool(base, above)
    assert (pool.steps["base"].reasons, pool.steps["d"].trainable) == ((f"missing_{word}",), True)
    sound = facts.call(call_id="base", attempt=1, received_us=1)
    (restored,) = restore(project(pool.state).values()).values()
    for state in (pool.state, restored):
        state = fold(state, sound, facts.FactPosition(topic="claw.calls", partition=0, offset=9))
        assert {one.call_id for one in project(state).values() if isinstance(one, StepRecord) and one.trainable} == {
            "base",
            "d",
        }


def test_a_closed_group_is_exactly_its_listed_members():
    """Whoever finishes later does not change what was closed; a listed stranger is shown as one."""
    pool = Pool(facts.call(), facts.completed(reward=1.0), facts.closed(members=["t"]), facts.call("g", "late"))
    assert ([one.trajectory_id for one in pool.group.members], pool.group.ready) == (["t"], True)
    assert Pool(facts.closed(members=["who"])).group.members[0].status == "unknown"
    assert Pool(facts.call(), facts.closed()).group.reasons == ("no_ready_member",)


def test_a_closed_group_does_not_wait_for_whom_nobody_heard_of():
    """A listed stranger is not ready and holds nobody up, also where only a reward knows the name; an open member does."""
    done = [facts.call(), facts.completed(reward=1.0)]
    for stranger in ([], [facts.reward("g", "who")], [facts.curated("g", "who", "c")]):
        group = Pool(*done, *stranger, facts.closed(members=["t", "who"])).group
        assert [(one.trajectory_id, one.status, one.ready) for one in group.members] == [
            ("t", "completed", True),
            ("who", "unknown", False),
        ]
        assert (group.ready, group.reasons) == (True, ())
        assert Pool(*stranger, facts.closed(members=["who"])).group.reasons == ("no_ready_member",)
    at_last = [facts.closed(members=["t", "who"]), *done, facts.call("g", "who")]
    assert Pool(*at_last).group.reasons == ("members_open",)
    assert Pool(*at_last, facts.abandoned("g", "who")).group.ready


def test_val_wins_a_conflict_of_channels():
    """Nobody trains on validation by accident."""
    pool = Pool(facts.opened(channel="val"), facts.call(channel="train"))
    assert (pool.group.channel, pool.t.channel) == ("val", "train")
    assert Pool(facts.call(channel="train"), facts.call(call_id="d", channel="probe")).group.channel == "probe"


def test_zero_variance_is_seen_over_members():
    """All returns equal: no signal for a group baseline."""
    history = [event for name in "tu" for event in (facts.call("g", name), facts.completed("g", name, reward=1.0))]
    assert (Pool(*history).group.zero_variance, Pool(*history).group.reward_std) == (True, 0.0)


def test_a_prompt_whose_base_is_missing_is_not_trainable_until_it_comes():
    """The whole chain counts, through untouched neighbours; the step in between is written again."""
    base = facts.call(call_id="a")
    child = facts.call(
        call_id="b", prompt=facts.edge((1,), base="a", keep=6), base_digest=facts.written_against(base, 6)
    )
    grandchild = facts.call(
        call_id="c", prompt=facts.edge((1,), base="b", keep=2), base_digest=facts.written_against(child, 2)
    )
    broken = Pool(child, grandchild)
    assert {step.reasons for step in broken.steps.values()} == {("parent_missing",)}
    whole = Pool(child, grandchild, base)
    assert all(step.trainable for step in whole.steps.values())
    assert written_by(base, broken.state) == {"a", "b", "c"}


def test_bases_in_a_circle_are_no_chain():
    """Nothing to start from."""
    digest = facts.written_against(facts.call(prompt=facts.edge((1,), base="c", keep=1)), 1)
    edges = {one: facts.edge((1,), base=other, keep=1) for one, other in ("ab", "ba")}
    pool = Pool(*(facts.call(call_id=one, prompt=edge, base_digest=digest) for one, edge in edges.items()))
    assert {step.prompt_id for step in pool.steps.values()} == {digest}
    assert {step.reasons for step in pool.steps.values()} == {("parent_missing",)}


def test_curation_is_settled_field_by_field():
    """A null leaves the earlier word; `who` is whoever spoke last."""
    out = facts.curated(trainable=False, note="why", who="ann", revision=1)
    quality = facts.curated(quality=0.5, trainable=True, who="bob", revision=0)
    undone = facts.curated(trainable=True, who="cleo", revision=2)
    for order in ([out, quality], [quality, out]):
        step = Pool(facts.call(), *order).steps["c"]
        assert (step.reasons, step.curation.quality, step.curation.note, step.curation.who) == (
            ("curated_out",),
            0.5,
            "why",
            "ann",
        )
        step = Pool(facts.call(), undone, *order).steps["c"]
        assert (step.trainable, step.curation.note, step.curation.who) == (True, "why", "cleo")


@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        ({"sampling": Sampling(temperature=0.0, top_p=1.0, top_k=0)}, {"greedy"}),
        ({"sampling": Sampling(temperature=1.0, top_p=0.9, top_k=5, min_p=0.1)}, {"top_p", "top_k", "min_p"}),
        ({"sampling": Sampling(temperature=1.0, top_p=1.0, top_k=-1)}, set()),
        ({"sampling": Sampling(temperature=1.0, top_p=1.0, top_k=0, repetition_penalty=1.1)}, {"penalties"}),
        ({"sampling": Sampling(temperature=1.0, top_p=1.0, top_k=0, constrained=True)}, {"constrained"}),
        ({"sampling": PLAIN, "status": "aborted"}, {"status_aborted"}),
        ({"spans": ()}, {"spans_unknown"}),
        ({"spans": (VersionSpan(run_id="run", version=1, start=0, end=2),)}, {"spans_mismatch"}),
        ({"spans": (VersionSpan(run_id="run", version=1, start=1, end=3),)}, {"spans_mismatch"}),
        ({"response_logprobs": b"\0" * 8}, {"logprobs_mismatch"}),
        ({"response_ids": b"\0" * 13, "response_logprobs": b"\0" * 13}, {"ids_malformed"}),
        ({"ids": (), "spans": ()}, {"response_empty", "spans_unknown"}),
        ({"prompt": facts.edge((1,), keep=1)}, {"prompt_mismatch"}),
        ({"integrity": Integrity(complete=False, missing=("version_unknown",))}, {"version_unknown"}),
        ({"integrity": Integrity(complete=False)}, {"incomplete"}),
    ],
)
def test_what_training_cannot_use_says_why(changes, reasons):
    """Each reason is one stable word; a trajectory without any trainable call is not ready."""
    pool = Pool(facts.call(**changes), facts.completed(reward=1.0))
    assert (set(pool.steps["c"].reasons), pool.steps["c"].trainable) == (reasons, not reasons)
    assert pool.t.reasons == (("no_trainable_call",) if reasons else ())


def test_versions_of_two_runs_in_one_reply_are_not_trainable():
    """A ratio needs one behaviour policy whose versions can be compared."""
    spans = tuple(VersionSpan(run_id=run, version=1, start=n, end=n + 1) for n, run in enumerate("aab"))
    pool = Pool(facts.call(spans=spans))
    assert pool.steps["c"].reasons == ("policy_run_mixed",)
    assert pool.t.policy_run_id == "mixed"
