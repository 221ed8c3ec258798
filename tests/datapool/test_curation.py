"""Who outranks whom, and taking a judgement back."""

import itertools

from datapool.curation import SCORER_REVISION_MAX, undoing
from datapool.state import StepState
from datapool.step import curated
from schemas.envelopes import now_us
from tests import facts


def folded(events):
    state = StepState()
    for event in events:
        state = curated(state, event)
    return state.curation


def undo(history, event_id, revision=99):
    return undoing(
        history,
        lambda fact: fact.envelope.event_id == event_id,
        who="me",
        revision=revision,
        make_envelope=facts.envelope,
    )


def judged(event_id, revision, **said):
    return facts.curated(envelope=facts.envelope(event_id), revision=revision, **said)


def test_a_person_outranks_every_scorer_whenever_they_spoke():
    """A person's revision is the time; no generation of a scorer reaches it."""
    person = judged("p", now_us(), quality=0.9, who="ann")
    scorer = judged("s", SCORER_REVISION_MAX, quality=0.1, who="scorer/length@1")
    for order in itertools.permutations([person, scorer]):
        assert folded(order).quality == 0.9


def test_an_undo_restores_what_stood_before():
    """Value by value: the earlier judgement, or none at all."""
    first = judged("1", 1, quality=0.4, tags=("x",))
    second = judged("2", 2, quality=0.9, trainable=False, note="bad")
    (event,) = undo([first, second], "2")
    after = folded([first, second, event])
    assert (after.quality, after.trainable, after.note, after.tags) == (0.4, None, None, ("x",))
    (again,) = undo([first, second, event], event.envelope.event_id, revision=100)
    restored = folded([first, second, event, again])
    assert (restored.quality, restored.trainable, restored.note) == (0.9, False, "bad")


def test_a_later_word_stands():
    """What somebody judged since is not undone; nothing left to undo is no event."""
    first, second = judged("1", 1, quality=0.4, trainable=False), judged("2", 2, quality=0.9)
    (event,) = undo([first, second], "1")
    assert (event.quality, event.clears) == (None, ("trainable",))
    assert undo([first, second, event], "1", revision=100) == []


def test_order_changes_no_undo():
    """The fold of the facts and the undo agrees in every order."""
    history = [judged("1", 1, quality=0.4), judged("2", 2, quality=0.9), judged("3", 2, tags=("x",))]
    (event,) = undo(history, "2")
    assert len({repr(folded(order)) for order in itertools.permutations([*history, event])}) == 1
