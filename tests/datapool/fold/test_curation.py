"""Who outranks whom, and taking a judgement back."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from claw_r1.datapool.fold.curation import REVISION_MAX, SCORER_REVISION_MAX, annotated, undoing
from claw_r1.schemas.codec import decode, encode
from claw_r1.schemas.envelopes import now_us
from tests import facts


def folded(events):
    curation = None
    for event in events:
        curation = annotated(curation, event)
    return curation


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


def test_a_judgement_of_the_highest_revision_can_be_taken_back():
    """There is none above it: of equal ones the later word counts."""
    highest = judged("a", REVISION_MAX, trainable=False)
    (taken_back,) = undo([highest], "a")
    assert decode(encode(taken_back)).revision == REVISION_MAX


def counts(events):
    """What is said of the step, and by whom."""
    now = folded(events)
    return None if now is None else (now.trainable, now.quality, now.tags, now.note, now.who, now.scores)


NOTHING = (None, None, (), None, "", {})


def test_a_person_outranks_every_scorer_whenever_they_spoke():
    """A person's revision is the time; no generation of a scorer reaches it."""
    person = judged("p", now_us(), quality=0.9, who="ann")
    scorer = judged("s", SCORER_REVISION_MAX, quality=0.1, who="scorer/length@1")
    for order in itertools.permutations([person, scorer]):
        assert folded(order).quality == 0.9


def test_an_undo_restores_what_stood_before():
    """Value by value: the earlier judgement, or none at all; an undo can be undone."""
    first = judged("1", 1, quality=0.4, tags=("x",))
    second = judged("2", 2, quality=0.9, trainable=False, note="bad")
    (event,) = undo([first, second], "2")
    assert counts([first, second, event]) == counts([first])
    (again,) = undo([first, second, event], event.envelope.event_id, revision=100)
    assert counts([first, second, event, again]) == counts([first, second])


def test_undone_in_the_order_in_which_they_were_given_nothing_comes_back():
    """The first is taken back while the second covers it; taking the second back must not uncover the first."""
    history = [judged("1", 1, quality=0.4, trainable=False), judged("2", 2, quality=0.9)]
    history += undo(history, "1")
    assert counts(history) == (None, 0.9, (), None, "someone", {})
    history += undo(history, "2", revision=100)
    assert counts(history) == NOTHING


def test_after_an_undo_a_scorers_word_counts_as_if_nobody_had_spoken():
    """What a person took back leaves no mark at a person's rank."""
    person = judged("p", now_us(), quality=0.9)
    (undone,) = undo([person], "p", revision=now_us())
    later = judged("s", 1, quality=0.2, who="scorer/length@1")
    assert counts([person, undone, later]) == counts([later])


def test_nothing_left_to_undo_is_no_event():
    """Taken back once, or never heard of."""
    first, second = judged("1", 1, quality=0.4, trainable=False), judged("2", 2, quality=0.9)
    (event,) = undo([first, second], "1")
    assert event.undoes == ("1",)
    assert undo([first, second, event], "1", revision=100) == []
    assert undo([first, second], "3") == []


def test_an_undo_by_a_clock_that_is_behind_takes_back_all_the_same():
    """Only what stands above a judgement takes it back, so the undo goes above it."""
    ahead = judged("1", 1000, quality=0.4)
    assert counts([ahead, *undo([ahead], "1", revision=5)]) == NOTHING


def test_judgements_that_take_each_other_back_have_one_outcome():
    """The highest counts, and what it names does not."""
    circle = [judged("1", 1, quality=0.1, undoes=("2",)), judged("2", 1, quality=0.2, undoes=("1",))]
    for order in itertools.permutations(circle):
        assert counts(order) == (None, 0.2, (), None, "someone", {})


def test_scorers_do_not_overwrite_each_other_in_whatever_order_they_speak():
    """Each keeps its own score; of one scorer the higher revision counts, also where it has nothing to say any more."""
    scorers = [
        judged("l", 0, quality=0.9, scores={"length@1": 0.9, "format@1": 1.0}),
        judged("e", 0, quality=0.2, scores={"entropy@1": 0.2}),
        judged("t", 1, scores={"format@1": None}),
        judged("p", now_us(), quality=0.7, who="ann"),
    ]
    for order in itertools.permutations(scorers):
        now = folded(order)
        assert now.scores == {"entropy@1": 0.2, "format@1": None, "length@1": 0.9}
        assert list(now.scores) == sorted(now.scores)
        assert now.quality == 0.7
    (taken_back,) = undo(scorers, "t", revision=2)
    assert folded([taken_back, *scorers]).scores == {"entropy@1": 0.2, "format@1": 1.0, "length@1": 0.9}


def test_the_record_keeps_what_was_taken_back_and_by_whom():
    """An undo hides nothing from an auditor."""
    first = judged("1", 1, quality=0.4, note="why", who="ann")
    (event,) = undo([first], "1")
    kept = folded([first, event]).judgements
    assert [(one.who, one.note, one.undoes) for one in kept] == [("ann", "why", ()), ("me", None, ("1",))]


SAID = st.fixed_dictionaries(
    {"who": st.sampled_from(["ann", "bob", "scorer/x@1"]), "revision": st.integers(1, 4)},
    optional={
        "trainable": st.booleans(),
        "quality": st.sampled_from([0.1, 0.2, 0.3]),
        "tags": st.sampled_from([(), ("x",)]),
        "note": st.sampled_from(["a", "b"]),
        "scores": st.dictionaries(st.sampled_from(["x@1", "y@1"]), st.sampled_from([0.1, 0.2, None])),
    },
)


def event_id(fact):
    return fact.envelope.event_id


@given(st.lists(SAID, min_size=1, max_size=6), st.data())
def test_judging_and_undoing_some_in_any_order_is_judging_the_rest(said, data):
    """Undone early or late, one by one, by somebody who had not heard of every other judgement or undo yet."""
    judgements = [judged(f"j{n}", **one) for n, one in enumerate(said)]
    undone = data.draw(st.lists(st.sampled_from(judgements), unique_by=event_id), label="undone")
    history = []
    for step in data.draw(st.permutations([*((one, False) for one in judgements), *((one, True) for one in undone)])):
        judgement, taken_back = step
        if taken_back:
            heard = [one for one in history if data.draw(st.booleans(), label="heard")]
            history += undo([*heard, judgement], judgement.envelope.event_id, revision=len(history))
        else:
            history.append(judgement)
    rest = [one for one in judgements if one not in undone]
    delivered = data.draw(st.permutations([*history, *history[:2]]), label="delivered")
    assert counts(delivered) == (counts(rest) if rest else NOTHING)


@given(st.lists(SAID, min_size=1, max_size=5), st.data())
def test_an_undo_that_is_undone_leaves_what_was_judged(said, data):
    """Twice taken back is given; whatever else was undone in between."""
    history = [judged(f"j{n}", **one) for n, one in enumerate(said)]
    before = counts(history)
    undos = []
    for one in data.draw(st.lists(st.sampled_from(history), unique_by=event_id)):
        undos += undo([*history, *undos], one.envelope.event_id, revision=len(undos))
    for one in data.draw(st.permutations(undos)):
        history += undo([*history, *undos], one.envelope.event_id)
    assert counts(data.draw(st.permutations([*history, *undos]))) == before
