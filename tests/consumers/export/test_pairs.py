"""Which pairs go out as preferences, and how their texts and tokens are put together."""

import itertools
from collections import Counter
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from claw_r1.consumers.export.choose import Chosen, choose
from claw_r1.consumers.export.pair_rows import PairedEpisode, pair_row
from claw_r1.consumers.export.pairs import PairSettings, pairs_of, preferred, rewarded
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.feedback import Comparison, FeedbackSubject, Remark, Signature, feedback_events, preference_event
from claw_r1.datapool.fold.fold import fold
from claw_r1.datapool.personal_words import Feedback
from claw_r1.schemas.arrays import unpack_ids
from claw_r1.schemas.events import CallCaptured, Edge, Event, FactPosition
from tests import facts
from tests.consumers.published import body, chat_call, episode

A, B, C, D = (FeedbackSubject("g", name) for name in "abcd")


def vote(chosen, rejected, who="ada", outcome="chosen", *, at_us=1, **more) -> Event:
    by = Signature(who=who, producer="test", at_us=at_us, act_id=f"{who}{at_us}")
    return preference_event(Comparison(chosen=chosen, rejected=rejected, outcome=outcome, **more), by)


def decided(*votes, name="overall"):
    left_out: Counter[str] = Counter()
    pairs = preferred(Feedback(votes).standing(), name, left_out)
    return [(pair.chosen.trajectory_id, pair.rejected.trajectory_id) for pair in pairs], +left_out


def test_the_majority_decides_and_equal_votes_are_left_out():
    """One vote of each person; ties and both bad are no vote."""
    assert decided(vote(A, B), vote(A, B, "ben"), vote(B, A, "eve")) == ([("a", "b")], {})
    assert decided(vote(A, B), vote(B, A, "ben")) == ([], {"contradicted": 1})
    assert decided(vote(A, B, outcome="tie"), vote(B, A, "ben", "both_bad")) == ([], {"tie": 1})
    assert decided(vote(A, B, outcome="tie"), vote(A, B, "ben")) == ([("a", "b")], {})
    assert decided(vote(A, B), vote(B, A, at_us=2)) == ([("b", "a")], {})
    assert decided(vote(A, B, name="style")) == ([], {})
    assert decided(vote(A, B, name="style"), name="style") == ([("a", "b")], {})


def test_preferences_in_a_circle_are_left_out_and_those_beside_it_stay():
    """A over B over C over A says nothing about these three."""
    circle = [vote(A, B), vote(B, C, "ben"), vote(C, A, "eve")]
    assert decided(*circle) == ([], {"circle": 3})
    assert decided(*circle, vote(A, D)) == ([("a", "d")], {"circle": 3})


@given(
    st.lists(
        st.tuples(st.sampled_from([A, B, C, D]), st.sampled_from([A, B, C, D]), st.sampled_from("xyz")), max_size=25
    )
)
def test_what_goes_out_never_contradicts_itself(votes):
    """Whatever people said, the pairs order their subjects: nobody is preferred to itself through others."""
    events = [vote(one, two, who, at_us=at) for at, (one, two, who) in enumerate(votes) if one != two]
    pairs, _ = decided(*events)
    order = {name: {two for one, two in pairs if one == name} for name in "abcd"}
    for path in itertools.permutations("abcd"):
        closed = [*path, path[0]]
        for length in range(2, 5):
            steps = list(itertools.pairwise([*closed[:length], closed[0]]))
            assert not all(two in order[one] for one, two in steps)


def folded(history: list[Event], spec: BatchSpec | None = None) -> list[Chosen]:
    state = None
    for offset, fact in enumerate(history):
        state = fold(state, fact, FactPosition(topic="claw.calls", partition=0, offset=offset))
    members = choose(state, spec)
    assert isinstance(members, list)
    return members


def test_a_spec_gives_the_reward_and_leaves_members_out():
    """Its weights decide who is better; without it the plain return does."""
    history = [
        facts.opened("g", expected_size=2),
        *(fact for name, value in (("a", 1.0), ("b", 0.0)) for fact in episode("g", name, value, calls=1)),
        facts.reward("g", "b", 0.5, source="judge", name="style"),
    ]
    plain, weighted = folded(history), folded(history, BatchSpec(group_size=2, reward_weights={"judge/style": 10.0}))
    settings = PairSettings(sources=("rewards",))
    best = [
        [(pair.chosen.trajectory_id, pair.margin) for pair in rewarded(members, settings)]
        for members in (plain, weighted)
    ]
    assert best == [[("a", 0.5)], [("b", 4.0)]]


def paired(history: list[Event], *words: Event, spec: BatchSpec | None = None, **settings):
    """(rows, reasons of those left out) of one group."""
    members, left_out = folded(history, spec), Counter[str]()
    calls = {event.call_id: event for event in history if isinstance(event, CallCaptured)}
    episodes = {
        member.record.trajectory_id: PairedEpisode(
            member, {step.call_id: calls[step.call_id] for step in member.steps}, any_policy=spec is None
        )
        for member in members
    }
    pairs = pairs_of(members, Feedback(words).standing(), PairSettings(**settings), left_out)
    rows = [pair_row(pair, episodes) for pair in pairs]
    left_out.update(row for row in rows if isinstance(row, str))
    return [row for row in rows if not isinstance(row, str)], +left_out


def test_who_has_no_reward_that_the_spec_counts_is_in_no_pair_by_reward():
    """An agent's own praise is weighed nothing: it makes nobody better than one whom the rule judged."""
    history = [
        chat_call("g", "good", "c0", [1, 2], [7, 8]),
        chat_call("g", "bad", "c1", [1, 2], [9]),
        facts.completed("g", "good", calls=1),
        facts.completed("g", "bad", calls=1),
        facts.reward("g", "good", 0.3, source="rule", name="x"),
        facts.reward("g", "bad", 1.0, source="agent", name="x"),
    ]
    spec = BatchSpec(preset="sft_logged", reward_weights={"agent/*": 0.0})
    assert paired(history, spec=spec, sources=("rewards",)) == ([], Counter())
    history.append(facts.reward("g", "bad", 0.1, source="rule", name="x"))
    ((row,), _) = paired(history, spec=spec, sources=("rewards",))
    assert (row["chosen_trajectory_id"], row["chosen_reward"], row["rejected_reward"]) == ("good", 0.3, 0.1)
    assert row["margin"] == pytest.approx(0.2)


def test_rewards_pair_the_best_with_the_worst_by_the_margin():
    """Each member once at most; equal ones never; the margin is the difference."""
    history = [
        fact
        for name, value in zip("abcde", (1.0, 0.0, 0.75, 0.5, 0.25), strict=True)
        for fact in episode("g", name, value, calls=1)
    ]
    pairs = list(rewarded(folded(history), PairSettings(sources=("rewards",))))
    assert [(p.chosen.trajectory_id, p.rejected.trajectory_id, p.margin) for p in pairs] == [
        ("a", "b", 1.0),
        ("c", "e", 0.5),
    ]
    assert len(list(rewarded(folded(history), PairSettings(margin=0.6)))) == 1
    equal = [fact for name in "ab" for fact in episode("g", name, 1.0, calls=1)]
    assert list(rewarded(folded(equal), PairSettings())) == []


def test_rewards_of_a_slot_pair_trajectories_and_calls_that_were_asked_the_same():
    """By a pattern of slots; the mean of several people."""
    history = [fact for name in "ab" for fact in episode("g", name, None, calls=2)]
    history += [
        facts.reward("g", "a", 1.0, source="human:ada", name="style"),
        facts.reward("g", "a", 0.0, source="human:ben", name="style"),
        facts.reward("g", "b", 0.25, source="human:ada", name="style"),
        *(
            facts.reward("g", name, value, call_id=f"{name}-1", source="judge", name="x")
            for name, value in (("a", 0.0), ("b", 1.0))
        ),
        facts.reward("g", "b", -1.0, call_id="b-0", source="judge", name="x"),
    ]
    members = folded(history)
    (people,) = rewarded(members, PairSettings(slot="human:*/style"))
    assert (people.chosen, people.margin, people.who) == (A, 0.25, ("human:ada", "human:ben"))
    (judge,) = rewarded(members, PairSettings(slot="judge/x"))
    assert (str(judge.chosen), str(judge.rejected)) == ("g/b/b-1", "g/a/a-1")


def test_a_pair_of_calls_has_the_exact_tokens_and_one_prompt():
    """Messages as templates take them, ids as sampled, versions and rewards of each side."""
    history = [
        chat_call("g", "a", "a0", [1, 2], [7, 8]),
        chat_call("g", "b", "b0", [1, 2], [9]),
        facts.reward("g", "a", 0.5, call_id="a0", source="judge"),
    ]
    sides = [FeedbackSubject("g", "a", "a0"), FeedbackSubject("g", "b", "b0")]
    ((row,), left_out) = paired(history, vote(*sides, strength=0.5), vote(*sides, "ben"))
    assert not left_out
    assert [(m["role"], m["content"]) for m in (*row["prompt"], *row["chosen"], *row["rejected"])] == [
        ("user", "1 2"),
        ("assistant", "7 8"),
        ("assistant", "9"),
    ]
    assert [list(unpack_ids(row[f"{name}_ids"])) for name in ("prompt", "chosen", "rejected")] == [[1, 2], [7, 8], [9]]
    assert (row["who"], row["margin"], row["chosen_versions"]) == (["human:ada", "human:ben"], 0.5, ["run/3"])
    assert (row["chosen_call_id"], row["chosen_reward"], row["rejected_reward"]) == ("a0", 0.5, None)


def test_calls_that_were_asked_something_else_are_no_pair():
    """Nor is one that nobody captured, one without words, or one answer given twice."""
    history = [
        chat_call("g", "a", "a0", [1, 2], [7]),
        chat_call("g", "b", "b0", [1, 3], [8]),
        chat_call("g", "c", "c0", [1, 2], [7]),
        chat_call("g", "d", "d0", [1, 2], [9], response_body=b"<html>"),
    ]
    first = FeedbackSubject("g", "a", "a0")
    for call, reason in (
        ("b/b0", "prompts_differ"),
        ("c/c0", "same_reply"),
        ("d/d0", "no_words"),
        ("b/x", "unknown_subject"),
        ("x/x", "unknown_subject"),
    ):
        assert paired(history, vote(first, FeedbackSubject("g", *call.split("/")))) == ([], {reason: 1})


def test_what_people_curated_as_not_trainable_is_never_chosen():
    """As a call, in a trajectory, or as the prompt of an edit; it may be rejected."""
    history = [chat_call("g", "a", "a0", [1, 2], [7, 8]), chat_call("g", "b", "b0", [1, 2], [9])]
    history.append(facts.curated("g", "a", "a0", trainable=False))
    first, second = FeedbackSubject("g", "a", "a0"), FeedbackSubject("g", "b", "b0")
    by = Signature(who="ada", producer="t", at_us=1, act_id="ada")
    for word in (vote(first, second), vote(A, B), *feedback_events(first, Remark(edit="better"), by)):
        assert paired(history, word) == ([], {"not_trainable": 1})
    rows, left_out = paired(history, vote(second, first), vote(B, A))
    assert (len(rows), left_out) == (2, {})


def test_what_only_words_are_left_of_may_be_chosen_where_no_spec_says_otherwise():
    """A preference asks for no tokens; a spec for its own policy does."""
    history = [
        facts.opened("g", expected_size=2),
        *(chat_call("g", name, f"{name}0", [1, 2], [n], response_logprobs=b"") for n, name in enumerate("ab")),
        *(facts.completed("g", name, calls=1, reward=float(name == "a")) for name in "ab"),
    ]
    rows, left_out = paired(history, vote(A, B))
    assert (len(rows), left_out) == (1, {})


def test_a_member_that_the_spec_leaves_out_is_rejected_at_most():
    """`return_min` and `best_of` leave it out of training, and an edit of it is a person's."""
    history = [
        facts.opened("g", expected_size=2),
        chat_call("g", "a", "a0", [1, 2], [7, 8]),
        chat_call("g", "b", "b0", [1, 2], [9]),
        facts.completed("g", "a", calls=1, reward=1.0),
        facts.completed("g", "b", calls=1, reward=0.0),
    ]
    spec = BatchSpec(group_size=2, return_min=0.5)
    assert paired(history, vote(B, A), spec=spec) == ([], {"not_trainable": 1})
    rows, left_out = paired(history, vote(A, B), spec=spec)
    assert (len(rows), left_out) == (1, {})
    by = Signature(who="ada", producer="t", at_us=1, act_id="ada")
    assert (
        len(paired(history, *feedback_events(FeedbackSubject("g", "b", "b0"), Remark(edit="ok"), by), spec=spec)[0])
        == 1
    )


def test_an_edit_is_chosen_over_what_was_sampled():
    """It has no tokens and no versions: nobody sampled it. Of two people, two pairs."""
    history = [chat_call("g", "a", "a0", [1, 2], [7, 8])]
    call = FeedbackSubject("g", "a", "a0")
    words = [
        event
        for who in ("ada", "ben")
        for event in feedback_events(
            call, Remark(edit=f"by {who}"), Signature(who=who, producer="t", at_us=1, act_id=who)
        )
    ]
    rows, left_out = paired(history, *words)
    assert [(row["chosen"][0]["content"], row["rejected"][0]["content"], row["who"]) for row in rows] == [
        ("by ada", "7 8", ["human:ada"]),
        ("by ben", "7 8", ["human:ben"]),
    ]
    assert (rows[0]["chosen_ids"], rows[0]["chosen_versions"], list(unpack_ids(rows[0]["rejected_ids"]))) == (
        None,
        [],
        [7, 8],
    )
    assert not left_out


def talk(trajectory: str, *turns: tuple[str, str], ids: bool = True) -> list[CallCaptured]:
    """A conversation of (question, answer): each request repeats what stands before it; an id is a message."""
    calls, messages, context = [], [], [100]
    for number, (question, answer) in enumerate(turns):
        messages.append({"role": "user", "content": question})
        context = [*context, hash_of(question)]
        call = chat_call(
            "g",
            trajectory,
            f"{trajectory}{number}",
            context if ids else [number + 1],
            [hash_of(answer)],
            received_us=number,
        )
        request = body({"messages": messages})
        reply = body({"choices": [{"index": 0, "message": {"role": "assistant", "content": answer}}]})
        calls.append(
            replace(
                call,
                request=Edge(suffix=request, full_length=len(request), full_digest=sha256(request).hexdigest()),
                response_body=reply,
            )
        )
        messages = [*messages, {"role": "assistant", "content": answer}]
        context = [*context, hash_of(answer)]
    return calls


def hash_of(text: str) -> int:
    return int.from_bytes(text.encode()[:3], "big")


def test_trajectories_part_at_an_assistants_turn_and_share_what_stands_before_it():
    """The prompt is the common front, with the exact ids of the call that was asked it; the rest is chosen or rejected."""
    history = [*talk("a", ("hi", "yes"), ("go", "good"), ("on", "end")), *talk("b", ("hi", "yes"), ("go", "bad"))]
    ((row,), _) = paired(history, vote(A, B))
    assert [m["content"] for m in row["prompt"]] == ["hi", "yes", "go"]
    assert [m["content"] for m in row["chosen"]] == ["good", "on", "end"]
    assert [m["content"] for m in row["rejected"]] == ["bad"]
    assert list(unpack_ids(row["prompt_ids"])) == [100, *map(hash_of, ("hi", "yes", "go"))]
    assert list(unpack_ids(row["chosen_ids"])) == [*map(hash_of, ("good", "on", "end"))]
    assert list(unpack_ids(row["rejected_ids"])) == [hash_of("bad")]


def test_trajectories_that_part_at_a_question_share_the_turns_before_the_last_common_answer():
    """What is chosen begins with an assistant's message, as trainers need it."""
    history = [*talk("a", ("hi", "yes"), ("go", "good")), *talk("b", ("hi", "yes"), ("no", "bad"))]
    ((row,), _) = paired(history, vote(A, B))
    assert [m["content"] for m in row["prompt"]] == ["hi"]
    assert [m["content"] for m in row["chosen"]] == ["yes", "go", "good"]
    other = [*talk("a", ("hi", "yes")), *talk("b", ("ho", "no"))]
    assert paired(other, vote(A, B)) == ([], {"prompts_differ": 1})
    assert paired([*talk("a", ("hi", "yes")), *talk("b", ("hi", "yes"))], vote(A, B)) == ([], {"same_reply": 1})


def test_ids_that_are_not_exact_are_null():
    """Where the engine's ids do not go on from each other, only the words go out."""
    history = [*talk("a", ("hi", "yes"), ("go", "good"), ids=False), *talk("b", ("hi", "no"))]
    ((row,), _) = paired(history, vote(A, B))
    assert (row["prompt_ids"], row["chosen_ids"], row["rejected_ids"]) == (None, None, None)


@pytest.mark.parametrize("wrong", [{"sources": ("votes",)}, {"margin": -1.0}, {"margin": float("nan")}])
def test_settings_that_make_no_sense_are_refused(wrong):
    """At load."""
    with pytest.raises(ValueError, match="validation error"):
        PairSettings(**wrong)
