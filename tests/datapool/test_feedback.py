"""What people say of replies: events made of it, and what of it stands."""

import itertools
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_r1.datapool.feedback import (
    REVISION_MAX,
    Comparison,
    FeedbackSubject,
    InvalidFeedback,
    Remark,
    Signature,
    feedback_events,
    keyed_act,
    preference_event,
    undo_events,
)
from claw_r1.datapool.fold.validation import usable
from claw_r1.datapool.personal_words import Feedback
from claw_r1.schemas import codec
from claw_r1.schemas.events import RewardAssigned, StepCurated

CALL, OTHER_CALL = FeedbackSubject("g", "t", "c"), FeedbackSubject("g", "u", "d")
TRAJECTORY, OTHER = FeedbackSubject("g", "t"), FeedbackSubject("g", "u")


def by(who="ada", at_us=1000, act_id=None):
    return Signature(who=who, producer="test", at_us=at_us, act_id=act_id or f"{who}@{at_us}")


def remarked(subject=CALL, *, who="ada", at_us=1000, act_id=None, **remark):
    return feedback_events(subject, Remark(**remark), by(who, at_us, act_id))


def compared(outcome="chosen", *, chosen=TRAJECTORY, rejected=OTHER, who="ada", at_us=1000, **more):
    return preference_event(Comparison(chosen=chosen, rejected=rejected, outcome=outcome, **more), by(who, at_us))


def stand(events, **of):
    """(who, kind, name, value or message or outcome, comment) of what stands."""
    return [
        (
            word.who,
            word.kind,
            word.name,
            getattr(word.fact, "outcome", None) or word.message or word.value,
            word.comment,
        )
        for word in Feedback(events).standing(**of)
    ]


def test_a_remark_is_one_event_per_part_of_it_and_its_comment_rides_with_the_first():
    """All share the act as correlation id, the person as source and the time as revision."""
    events = remarked(thumb=True, scores={"style": 0.5, "facts": 1}, edit="Better.", comment="nice")
    assert [type(event).__name__ for event in events] == [*["RewardAssigned"] * 3, "OutputEdited"]
    assert {(event.source, event.revision, event.envelope.correlation_id) for event in events} == {
        ("human:ada", 1000, "ada@1000")
    }
    assert sorted(stand(events), key=str) == sorted(
        [
            ("ada", "thumb", "thumb", 1.0, "nice"),
            ("ada", "score", "facts", 1.0, None),
            ("ada", "score", "style", 0.5, None),
            ("ada", "edit", "edit", {"role": "assistant", "content": "Better."}, None),
        ],
        key=str,
    )


def test_a_comment_alone_is_a_note_of_a_call_and_a_slot_without_value_of_a_trajectory():
    """A trajectory has no notes; the slot weighs nothing, and the pool takes both."""
    (note,), (word,) = remarked(comment="why?"), remarked(TRAJECTORY, comment="why?")
    assert isinstance(note, StepCurated)
    assert (note.note, note.who, note.trainable) == ("why?", "ada", None)
    assert isinstance(word, RewardAssigned)
    assert (word.name, word.value) == ("comment", None)
    for event in (note, word):
        assert usable(codec.decode(codec.encode(event))) == event
        assert [row[1:] for row in stand([event])] == [("comment", "comment", None, "why?")]


def test_of_one_person_and_place_the_later_word_stands_and_others_keep_theirs():
    """Who and subject are part of the place; the history has all."""
    events = [
        *remarked(thumb=True),
        *remarked(thumb=False, at_us=2000),
        *remarked(thumb=True, who="ben"),
        *remarked(OTHER_CALL, thumb=True),
    ]
    words = Feedback(events)
    assert {(word.who, word.value) for word in words.standing(subject=CALL)} == {("ben", 1.0), ("ada", 0.0)}
    assert [word.value for word in words.history(subject=CALL, source="human:ada")] == [1.0, 0.0]
    assert len(words.history()) == 4


def test_an_undo_empties_the_place_and_is_above_what_it_undoes_whatever_the_clock_said():
    """Nothing older comes back; what the person says afterwards counts again."""
    older = remarked(thumb=False, at_us=500)
    act = remarked(thumb=True, scores={"style": 1}, edit="x", at_us=9000)
    note, duel = remarked(comment="hm", at_us=9000, act_id="n"), compared(at_us=9000)
    words = Feedback([*older, *act, *note, duel])
    undos = undo_events([word.fact for word in words.standing()], by(at_us=100))
    assert len(undos) == 5
    assert all(undo.revision == 9001 for undo in undos)
    assert stand([*older, *act, *note, duel, *undos]) == []
    again = remarked(thumb=True, at_us=9500)
    assert [row[3] for row in stand([*undos, *again, *act, *older])] == [1.0]


def test_the_last_act_is_what_an_undo_takes_back_and_older_acts_stay():
    """By person, of a subject or anywhere; of the act only what nobody replaced."""
    events = [
        *remarked(scores={"style": 1}),
        *remarked(thumb=True, scores={"facts": 1}, at_us=2000),
        *remarked(who="ben", thumb=True),
    ]
    words = Feedback(events)
    assert {word.name for word in words.last_act("human:ada")} == {"thumb", "facts"}
    undone = undo_events([word.fact for word in words.last_act("human:ada", subject=CALL)], by(at_us=3000))
    assert {(row[0], row[2]) for row in stand([*events, *undone])} == {("ben", "thumb"), ("ada", "style")}
    assert words.last_act("human:eve") == []


def test_a_note_beside_a_judgement_is_a_reason_of_curation_and_no_comment():
    """An undo of comments must not take back that a step is not trained on."""
    curated = StepCurated(
        envelope=remarked(comment="x")[0].envelope,
        group_id="g",
        trajectory_id="t",
        call_id="c",
        trainable=False,
        note="bad",
        who="ada",
    )
    assert stand([curated]) == []


def test_a_curations_undo_takes_a_comment_back_whoever_signs_it():
    """`claw pool curate --undo` and `claw label --undo` are one rule."""
    (note,) = remarked(comment="hm")
    (undo,) = undo_events([note], by(who="ben", at_us=2000))
    assert stand([note, undo]) == []
    assert [word.stands for word in Feedback([note, undo]).history()] == [False]


def test_an_earlier_comment_returns_when_a_later_one_is_taken_back():
    """The undo is the person's own last curation of the call, and no comment."""
    first, second = remarked(comment="first"), remarked(comment="second", at_us=2000)
    words = Feedback([*first, *second])
    undone = undo_events([word.fact for word in words.last_act("human:ada", subject=CALL)], by(at_us=3000))
    assert [row[4] for row in stand([*first, *second, *undone])] == ["first"]


def test_a_comment_stays_when_its_author_takes_back_a_curation_of_the_call():
    """`claw pool curate --no-train` and `--undo` say nothing about it."""
    (note,) = remarked(comment="wrong tool")
    (other,) = remarked(comment="x", at_us=2000)
    out = msgspec.structs.replace(other, note=None, trainable=False)
    (undo,) = undo_events([out], by(at_us=3000))
    assert [row[4] for row in stand([note, out, undo])] == ["wrong tool"]


def test_preferences_of_one_person_and_pair_are_one_place_whichever_way_round():
    """Withdrawn: as if nobody had compared them; another name, person or pair is another place."""
    first, turned = compared(), compared(chosen=OTHER, rejected=TRAJECTORY, at_us=2000, strength=0.5, comment="now")
    (word,) = Feedback([turned, first]).standing(subject=TRAJECTORY)
    assert (word.subject, word.other, word.comment) == (OTHER, TRAJECTORY, "now")
    assert stand([first, turned, compared("withdrawn", at_us=3000)]) == []
    assert len(stand([first, compared("tie", who="ben"), compared("both_bad", name="style")])) == 3


def test_withdrawals_name_what_no_longer_stands():
    """Of slots, and of the edit; another person's stays."""
    events = [*remarked(thumb=True, scores={"style": 1}, edit="x"), *remarked(who="ben", thumb=True)]
    withdrawn = remarked(withdraw=("thumb", "edit"), at_us=2000)
    assert sorted(row[:3] for row in stand([*events, *withdrawn])) == [
        ("ada", "score", "style"),
        ("ben", "thumb", "thumb"),
    ]


def test_the_same_request_under_its_idempotency_key_is_the_same_event():
    """Ids are functions of act, subject and slot; of two people with one key they differ."""
    ids = [
        remarked(thumb=up, at_us=at, who=who, act_id=keyed_act("k", who))[0].envelope.event_id
        for up, at, who in ((True, 1, "ada"), (True, 2, "ada"), (True, 1, "ben"))
    ]
    assert ids[0] == ids[1] != ids[2]


@pytest.mark.parametrize(
    ("field", "act"),
    [
        *[("who", lambda who=who: remarked(thumb=True, who=who)) for who in ("", " ada", "a\nb", "a/b", "*", "human:ada", "x" * 129)],
        *[("scores", lambda value=value: remarked(scores={"style": value})) for value in (math.nan, math.inf, 1e31)],
        *[("scores", lambda name=name: remarked(scores={name: 1.0})) for name in ("", "thumb", "edit", "a/b", "a\x00")],
        *[("comment", lambda text=text: remarked(thumb=True, comment=text)) for text in ("", " ", "\x00", "\ud800", "x" * 10_001)],
        *[("edit", lambda edit=edit: remarked(edit=edit)) for edit in ("", {}, {"role": "user", "content": "x"}, 3, "\ud800", "x" * (1 << 20))],
        ("edit", lambda: remarked(TRAJECTORY, edit="x")),
        ("nothing is said:", lambda: remarked()),
        ("withdraw", lambda: remarked(thumb=True, withdraw=("thumb",))),
        ("withdraw", lambda: remarked(withdraw=("comment",))),
        ("rejected", lambda: compared(rejected=TRAJECTORY)),
        ("rejected", lambda: compared(rejected=FeedbackSubject("h", "u"))),
        ("rejected", lambda: compared(rejected=OTHER_CALL)),
        ("strength", lambda: compared(strength=math.nan)),
    ],
)  # fmt: skip
def test_what_cannot_be_stored_as_it_is_is_refused_with_its_field(field, act):
    """In one line that says what to change."""
    with pytest.raises(InvalidFeedback) as refused:
        act()
    assert refused.value.field == field
    assert "\n" not in str(refused.value)


WORDS = [
    *remarked(thumb=True),
    *remarked(thumb=False, at_us=2000),
    *remarked(comment="a", at_us=2500),
    *remarked(comment="b", at_us=2600),
    *remarked(withdraw=("thumb",), at_us=3000),
    *remarked(TRAJECTORY, comment="c"),
    compared(),
    compared("tie", at_us=4000),
    *undo_events(remarked(comment="b", at_us=2600), by(at_us=5000)),
]


@given(st.permutations(range(len(WORDS))), st.lists(st.integers(0, len(WORDS) - 1)))
def test_any_order_and_any_repetition_gives_the_same(order, again):
    """Standing and history are functions of the set of facts."""
    events = [WORDS[at] for at in (*order, *again)]
    assert Feedback(events).history() == Feedback(WORDS).history()


def test_of_one_event_id_with_two_contents_one_is_kept_in_any_order():
    """The higher revision, as in the pool."""
    twice = [remarked(thumb=up, at_us=at, act_id="k")[0] for up, at in ((True, 1), (False, 2))]
    assert [stand(events) for events in itertools.permutations(twice)] == [[("ada", "thumb", "thumb", 0.0, None)]] * 2


def test_a_word_of_the_highest_revision_locks_nobody_out():
    """Its person takes it back, and what comes after it by its time stands: nothing overflows."""
    words = [msgspec.structs.replace(remarked(thumb=True)[0], revision=REVISION_MAX)]
    words += undo_events(words, by(at_us=2000))
    assert stand(words) == []
    words += feedback_events(CALL, Remark(thumb=False), msgspec.structs.replace(by(at_us=3000), above=REVISION_MAX))
    assert [(word[2], word[3]) for word in stand(words)] == [("thumb", 0.0)]
    assert all(codec.encode(word) for word in words)
