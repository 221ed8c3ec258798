"""One account of tokens for live work and for a backfill: by assigned partitions, overdrawn by one answer, and never for ever."""

import threading
from contextlib import closing
from dataclasses import replace

import pytest

from claw_r1.consumers.rewards import budget as module
from claw_r1.consumers.rewards.budget import TokenBudget, guessed_tokens
from claw_r1.consumers.rewards.config import ScoredSlot, SlotOptions
from claw_r1.consumers.rewards.judged import Judged
from claw_r1.consumers.rewards.kept_verdicts import DAY_US, Verdicts
from claw_r1.consumers.rewards.kinds import ScorerSettings, kind_of
from claw_r1.consumers.rewards.metrics import RewardsMetrics
from claw_r1.consumers.rewards.rescoring.backfill import slot_again
from claw_r1.consumers.rewards.scorer import GaveUp, Opinion
from claw_r1.consumers.rewards.scoring import ScoringStopped, SlotScoring
from claw_r1.consumers.rewards.settings import RewardsSettings
from claw_r1.consumers.rewards.subjects.log_history import FetchedCalls
from claw_r1.consumers.rewards.subjects.of_calls import CallSubjects
from claw_r1.consumers.rewards.subjects.of_rows import RowSubjects
from claw_r1.eventlog.errors import BrokerUnreachable
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.eventlog.partitioner import partition_of
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS, GROUPS, TRAJECTORIES
from tests.consumers.published import episode
from tests.consumers.rewards.in_memory import (
    NEVER,
    SETTINGS,
    FunctionScorer,
    add_to,
    at_work,
    history_of,
    judge_all,
    pooled_log,
    slot_of,
    slots,
    verdicts,
    words,
    work_off,
)
from tests.patience import until

FOUR = SETTINGS.model_copy(update={"partitions": 4})


@pytest.fixture(autouse=True)
def one_day():
    """The test lies within one day of UTC, as its budgets do: verdicts have the real time."""
    until(lambda: DAY_US - now_us() % DAY_US > 30_000_000, "tomorrow")


def paid(tokens=10):
    return lambda judged: Opinion(values=(1.0,) * judged.answers, tokens=tokens)


def budgeted(tokens_per_day, **fields):
    options = SlotOptions.model_validate({"budget": {"tokens_per_day": tokens_per_day}})
    return slot_of("trajectory", options=options, pure=False, **fields)


def groups_of(partition, count, log_settings=FOUR):
    """Names of groups that lie in one partition."""
    names = (f"g{n}" for n in range(10_000))
    fitting = (name for name in names if partition_of(group_key(name), log_settings.partitions) == partition)
    return [next(fitting) for _ in range(count)]


def add_groups(log, names):
    add_to(log, [event for name in names for event in episode(name, "t", None, calls=1)])


def test_the_budget_is_overdrawn_by_at_most_one_answer():
    """10 tokens a verdict, 25 a day: three are asked, and the rest is said to be beyond it. The first goes alone."""
    log = pooled_log([event for n in range(30) for event in episode(f"g{n}", "t", None, calls=1)])
    scorer = judge_all(log, budgeted(25), paid())
    assert len(scorer.views) == 3
    assert list(slots(log).values()).count("budget_spent") == 27
    assert sum(verdict.tokens for verdict in verdicts(log)) == 30


def test_the_share_is_of_assigned_partitions_not_of_those_that_had_a_subject():
    """One process holds all four partitions, and every subject lies in one of them: the whole budget is its own."""
    log = MemoryLog(FOUR)
    add_groups(log, groups_of(1, 20))
    scorer = judge_all(log, budgeted(120), paid())
    assert len(scorer.views) == 12


def test_two_members_have_half_of_it_each():
    """By the partitions that the group gave them."""
    log = MemoryLog(FOUR)
    slot = budgeted(80)
    scorers = [FunctionScorer(paid()) for _ in range(2)]
    with at_work(log, slot, scorers[0]) as one, at_work(log, slot, scorers[1]) as other:
        for loop in (one, other, one, other):  # they share the partitions out
            loop.step(NEVER)
        for partition in range(4):
            add_groups(log, groups_of(partition, 5))
        for loop in (one, other) * 3:
            loop.step(NEVER)
    assert [len(scorer.views) for scorer in scorers] == [4, 4]


def test_what_was_paid_today_in_every_assigned_partition_counts():
    """A process that starts anew, and has seen no subject of that partition yet, owes what was spent there."""
    log = MemoryLog(FOUR)
    slot = budgeted(50)
    add_groups(log, groups_of(2, 5))
    assert len(judge_all(log, slot, paid()).views) == 5
    add_groups(log, groups_of(3, 5))
    assert judge_all(log, slot, paid()).views == []


def test_what_was_beyond_the_budget_is_asked_once_there_is_room():
    """The next day, without a new record; its failure is said once, no kept verdict, and outranked by the value."""
    log = pooled_log([event for n in range(5) for event in episode(f"g{n}", "t", None, calls=1)])
    slot, days = budgeted(20), [0]
    scorer = FunctionScorer(paid())
    with at_work(log, slot, scorer, clock_us=lambda: now_us() + days[0] * DAY_US) as loop:
        work_off(log, slot, loop)
        loop.step(NEVER)
        assert len(scorer.views) == len(verdicts(log)) == 2
        assert [event.reason for event in words(log) if not hasattr(event, "value")] == ["budget_spent"] * 3
        days[0] = 1
        loop.step(NEVER)
        assert len(scorer.views) == 5
        assert list(slots(log).values()) == [1.0] * 5
        said = len(words(log))
        loop.step(NEVER)
        assert len(words(log)) == said == 8


def test_a_failure_that_is_kept_outranks_that_it_was_put_off():
    """Of two words without a value the one that stays is seen."""
    log = pooled_log([event for n in range(2) for event in episode(f"g{n}", "t", None, calls=1)])
    slot, days = budgeted(5), [0]

    def late(judged):
        if days[0]:
            raise GaveUp("deadline", "")
        return paid()(judged)

    with at_work(log, slot, FunctionScorer(late), clock_us=lambda: now_us() + days[0] * DAY_US) as loop:
        work_off(log, slot, loop)
        days[0] = 1
        loop.step(NEVER)
    assert sorted(map(str, slots(log).values())) == ["1.0", "deadline"]


def test_what_was_put_off_has_a_bound(monkeypatch):
    """The oldest stay without a value."""
    monkeypatch.setattr(module, "PUT_OFF_MAX", 2)
    log = pooled_log([event for n in range(6) for event in episode(f"g{n}", "t", None, calls=1)])
    slot, days = budgeted(1), [0]
    scorer = FunctionScorer(paid(1))
    with at_work(log, slot, scorer, clock_us=lambda: now_us() + days[0] * DAY_US) as loop:
        work_off(log, slot, loop)
        for day in (1, 2, 3, 4):
            days[0] = day
            loop.step(NEVER)
    assert len(scorer.views) == 3


@pytest.mark.parametrize("dear", [10, 30])
def test_what_is_on_its_way_is_reserved(dear):
    """By the dearest answer so far, or by what is shown where that is more; the first of all goes alone."""
    budget = TokenBudget(100)
    assert budget.reserve((0, "a"), 5)
    assert not budget.reserve((0, "b"), 5), "nobody knows what one costs"
    budget.settle((0, "a"), dear)
    granted = [name for name in "bcdefghijklmno" if budget.reserve((0, name), 5)]
    assert len(granted) == (100 - dear) // dear
    assert not budget.reserve((0, "p"), 5)
    budget.settle((0, "b"), 1)
    assert not budget.reserve((0, "p"), 1000)


def test_a_backfill_ends_with_its_budget_and_keeps_what_is_in_flight():
    """Nobody else is asked, nothing is said to have failed, and what was answered is kept."""
    log = pooled_log([event for n in range(6) for event in episode(f"g{n}", "t", None, calls=1)])
    slot, scorer = slot_of("trajectory", pure=False), FunctionScorer(paid())
    used = RewardsSettings()
    source = RowSubjects(slot, history_of(log), FetchedCalls(log.lookup(), used.requests_bytes_max), used)
    budget = TokenBudget(25)
    with closing(
        SlotScoring(slot, scorer, Verdicts(log, slot), source, RewardsMetrics(), stop=NEVER, budget=budget)
    ) as scoring:
        for topic in (TRAJECTORIES, GROUPS):
            for record in log.reader([topic]).read_to_end():
                scoring.work(record)
        with pytest.raises(ScoringStopped):
            scoring.rest()
    assert (len(scorer.views), len(verdicts(log)), budget.left()) == (3, 3, -5)
    assert {verdict.failed for verdict in verdicts(log)} == {None}


class BlippedCalls(CallSubjects):
    """The last subject's request is read in the log, which is not reachable at the first look."""

    refusals = 1

    def take(self):
        *others, last = super().take() or [None]
        return [*others, replace(last, assemble=lambda: self._read(last))] if last else []

    def _read(self, subject):
        if self.refusals:
            self.refusals -= 1
            raise BrokerUnreachable("restarting")
        return subject.assemble()


def blipped(budget, stop=NEVER):
    """A slot of two calls with that budget."""
    log = pooled_log([event for name in "ab" for event in episode(name, "t", None, calls=1)])
    slot = slot_of("call", pure=False)
    source = BlippedCalls(slot, history_of(log), RewardsSettings())
    scorer, metrics = FunctionScorer(paid()), RewardsMetrics()
    scoring = SlotScoring(slot, scorer, Verdicts(log, slot), source, metrics, stop=stop, budget=budget)
    for record in log.reader([CALLS]).read_to_end():
        scoring.work(record)
    return scoring


def test_what_was_reserved_and_never_asked_is_free_again():
    """The broker was away while the second question was put together, and the first has to go alone: the next try asks both."""
    stop = threading.Event()
    with closing(blipped(TokenBudget(100), stop)) as scoring:
        with pytest.raises(BrokerUnreachable):
            scoring.rest()
        deadline = threading.Timer(10, stop.set)
        deadline.start()
        assert [reward.value for _, _, reward in scoring.rest()] == [1.0] * 2
        deadline.cancel()


def test_a_stop_is_heard_while_nothing_is_in_flight():
    """Whatever the reason why nothing can be asked: a process that is asked to end does."""
    stop = threading.Event()
    stop.set()
    with closing(blipped(TokenBudget(100), stop)) as scoring, pytest.raises(ScoringStopped):
        scoring.rest()


def test_failures_cost_as_answers_do():
    """A judge that answers nonsense is paid all the same."""
    log = pooled_log([event for n in range(9) for event in episode(f"g{n}", "t", None, calls=1)])

    def odd(_):
        raise GaveUp("unparsable", "", tokens=10)

    assert len(judge_all(log, budgeted(25), odd).views) == 3


def test_a_guess_counts_votes_and_only_kinds_that_are_paid():
    """A quarter of the characters that are shown."""
    fields = {"source": "judge", "name": "it", "version": 1, "scope": "trajectory"}
    judge = kind_of("judge")
    shown = Judged(scope="trajectory", group_id="g", conversation=({"role": "user", "content": "x" * 4000},))
    scorer = judge.settings(**fields, use="judge", rubric="r.md", model="m", votes=3)
    assert 3000 <= guessed_tokens(ScoredSlot(scorer, SlotOptions(), judge), shown) < 3100
    rule = ScorerSettings(**fields, use="a:b")
    assert guessed_tokens(ScoredSlot(rule, SlotOptions(), kind_of("a:b")), shown) == 0


def test_a_scorer_knows_its_generation():
    """So that its kind may ask anew."""
    scorer = ScorerSettings(source="rule", name="it", use="a:b", version=1, scope="call")
    again = slot_again(ScoredSlot(scorer, SlotOptions(), kind_of("a:b")), 2)
    assert (again.scorer.generation, again.generation, scorer.generation) == (2, 2, 0)
