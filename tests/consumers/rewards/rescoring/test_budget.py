"""A budget of tokens stops a backfill: whoever sees an answer sees it paid."""

import threading
from concurrent.futures import Future

import pytest

from consumers.rewards.config import ScoredSlot, SlotOptions
from consumers.rewards.kinds import ScorerSettings, kind_of
from consumers.rewards.opinions import GaveUp, Opinion
from consumers.rewards.rescoring.backfill import BudgetedScorer, TokenBudget, slot_again


class Waiting:
    """A scorer that answers when a test says so."""

    def __init__(self):
        self.answers = []

    def judge(self, subjects):
        self.answers = [Future() for _ in subjects]
        return self.answers

    def close(self):
        pass


def test_the_answer_that_spends_the_last_token_stops_before_it_is_seen():
    """Answers and failures cost; what is in flight beyond the budget still comes."""
    stop = threading.Event()
    budget = TokenBudget(10, stop)
    scorer = Waiting()
    first, second, third = BudgetedScorer(scorer, budget).judge([None] * 3)
    scorer.answers[0].set_result(Opinion(values=(1.0,), tokens=6))
    assert first.result().tokens == 6
    assert not stop.is_set()
    second.add_done_callback(lambda _: seen.append(stop.is_set()))
    seen = []
    scorer.answers[1].set_exception(GaveUp("odd", "no answer", tokens=4))
    assert isinstance(second.exception(), GaveUp)
    assert seen == [True]
    assert budget.is_spent
    scorer.answers[2].set_result(Opinion(values=(0.0,), tokens=5))
    assert third.result().values == (0.0,)


@pytest.mark.parametrize("tokens", [0, 1])
def test_a_budget_of_nothing_asks_nobody(tokens):
    """It stops before the first question."""
    stop = threading.Event()
    assert TokenBudget(tokens, stop).is_spent is stop.is_set() is (tokens == 0)


def test_a_scorer_knows_its_generation():
    """So that its kind may ask anew."""
    scorer = ScorerSettings(source="rule", name="it", use="a:b", version=1, scope="call")
    again = slot_again(ScoredSlot(scorer, SlotOptions(), kind_of("a:b")), 2)
    assert (again.scorer.generation, again.generation, scorer.generation) == (2, 2, 0)
