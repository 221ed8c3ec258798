"""From facts to subjects: what a scorer sees, and that no order of the facts changes what is said in the end."""

import hashlib
import zlib

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import msgpack
from msgspec.structs import replace

from claw_r1.consumers.rewards.settings import RewardsSettings
from claw_r1.consumers.rewards.subjects.subject import call_content, digest_of
from claw_r1.eventlog.records import Outgoing
from claw_r1.schemas.arrays import pack_ids
from claw_r1.schemas.events import Edge
from claw_r1.schemas.topics import CALLS
from tests import facts
from tests.consumers.published import chat_call
from tests.consumers.rewards.in_memory import add_to, judge_all, pooled_log, slot_of, slots, words


def content(judged):
    """A number for each value, of everything that a scorer sees."""
    plain = msgpack.encode(judged)
    return tuple(float(zlib.crc32(plain + bytes([at]))) for at in range(judged.answers))


def body(messages):
    return orjson.dumps({"messages": messages, "tools": []})


def turn(trajectory, number, messages, reply, *, group="g", base=None, **changes):
    """A call of a conversation in plain text; written against `base`, as a gateway does."""
    text = body(messages)
    ids = list(range(len(messages) * 10))
    fields = {
        "prompt": facts.edge(ids[-5:], base=base, keep=len(ids) - 5) if base else facts.edge(ids),
        "request": Edge(suffix=text, full_length=len(text), full_digest=hashlib.sha256(text).hexdigest()),
        "response_body": orjson.dumps({"choices": [{"message": {"role": "assistant", "content": reply}}]}),
        "response_ids": pack_ids([len(reply), number]),
        **changes,
    }
    call = chat_call(group, trajectory, f"{trajectory}-{number}", ids, [1, 1], received_us=10 + number)
    return replace(call, **fields)


def dialogue(trajectory, words_of_it=("red", "blue", "grey"), *, group="g", reward=None):
    """Three turns: a question, a tool's result after each reply."""
    messages, events, base = [{"role": "user", "content": f"task {trajectory}"}], [], None
    for number, word in enumerate(words_of_it):
        events.append(turn(trajectory, number, messages, word, group=group, base=base))
        base = f"{trajectory}-{number}"
        messages = [*messages, {"role": "assistant", "content": word}, {"role": "tool", "content": f"result {number}"}]
    return [
        *events,
        facts.completed(group, trajectory, calls=len(words_of_it), reward=reward, envelope=facts.envelope(at_us=99)),
    ]


GROUP = [
    facts.opened("g", expected_size=2, task='{"answer": 4}', tags=("sums",)),
    *dialogue("t"),
    *dialogue("u", ("odd", "even")),
]


def test_a_turn_sees_what_came_after_it_and_the_last_one_nothing():
    """Scope next: the tool's result, which the client sent with its next request."""
    scorer = judge_all(pooled_log(GROUP), slot_of("next"), content)
    after = {judged.calls[0].call_id: judged.calls[0].after for judged in scorer.views}
    assert set(after) == {"t-0", "t-1", "t-2", "u-0", "u-1"}
    assert [message["content"] for message in after["t-0"]] == ["result 0"]
    assert [message["content"] for message in after["t-1"]] == ["result 1"]
    assert after["t-2"] is after["u-1"] is None


def test_a_turn_is_judged_as_soon_as_another_one_goes_on_with_it():
    """The trajectory is still open; the last turn waits for its end."""
    log = pooled_log(GROUP[:3])
    judge_all(log, slot_of("next"), content)
    assert set(slots(log)) == {("g", "t", "t-0")}


def test_a_trajectory_is_one_conversation_with_task_and_tags_of_its_group():
    """Scope trajectory: whole, and only when it is over."""
    scorer = judge_all(pooled_log(GROUP), slot_of("trajectory"), content)
    (judged,) = [view for view in scorer.views if view.trajectory_id == "t"]
    assert [message["content"] for message in judged.conversation] == [
        "task t",
        "red",
        "result 0",
        "blue",
        "result 1",
        "grey",
    ]
    assert [call.call_id for call in judged.calls] == ["t-0", "t-1", "t-2"]
    assert (judged.task, judged.tags, judged.status) == ({"answer": 4}, ("sums",), "completed")


def test_steps_have_a_value_each_and_a_group_one_per_member():
    """As many rewards as `Judged.answers`, on calls and on trajectories."""
    log = pooled_log(GROUP)
    judge_all(log, slot_of("steps"), lambda judged: tuple(float(at) for at in range(judged.answers)))
    assert slots(log) == {("g", "t", f"t-{n}"): float(n) for n in range(3)} | {
        ("g", "u", f"u-{n}"): float(n) for n in range(2)
    }
    log = pooled_log(GROUP)
    judge_all(log, slot_of("group"), lambda judged: tuple(float(len(member.calls)) for member in judged.members))
    assert slots(log) == {("g", "t", None): 3.0, ("g", "u", None): 2.0}


def test_nothing_is_judged_before_it_is_over_and_whole():
    """A call that its completion counted is missing; a group waits for its second member."""
    for scope in ("steps", "trajectory", "group"):
        log = pooled_log([event for event in GROUP if getattr(event, "call_id", "") != "u-0"])
        judge_all(log, slot_of(scope), content)
        expected = set() if scope == "group" else {"t"}
        assert {trajectory for _, trajectory, _ in slots(log)} == expected


def test_a_judge_and_side_calls_are_never_scored():
    """By channel and by kind; in a trajectory they are left out, and do not make it unjudgeable."""
    own = turn("j", 0, [{"role": "user", "content": "hm"}], "1", group="j", channel="judge")
    side = turn("t", 5, [{"role": "user", "content": "title?"}], "Sums", call_kind="side", tags=("kind:side",))
    history = [*dialogue("t")[:-1], side, facts.completed("g", "t", calls=4), own, facts.completed("j", "j", calls=1)]
    for scope in ("call", "next", "steps", "trajectory"):
        log = pooled_log(history)
        scorer = judge_all(log, slot_of(scope), content)
        assert {group for group, *_ in slots(log)} == {"g"}
        assert all("t-5" not in [call.call_id for call in view.calls] for view in scorer.views)


def test_a_title_that_is_asked_for_first_is_no_part_of_what_is_judged():
    """It has no tools and says nothing of itself: only all calls of the trajectory tell. At once, as scope `call` judges,
    nobody can; a later call without tools is known for one."""
    user = [{"role": "user", "content": "title?"}]
    title, late = turn("s", 0, user, "Sums", group="s"), turn("s", 2, user, "Bye", group="s")
    work = turn("s", 1, user, "4", group="s", has_tools=True)
    history = [title, work, late, facts.completed("s", "s", calls=3)]
    for scope, expected in (("steps", {"s-1"}), ("next", {"s-1"}), ("call", {"s-0", "s-1"})):
        log = pooled_log(history)
        judge_all(log, slot_of(scope), content)
        assert {call_id for _, _, call_id in slots(log)} == expected
    log = pooled_log(history)
    scorer = judge_all(log, slot_of("trajectory"), content)
    assert [[call.call_id for call in view.calls] for view in scorer.views] == [["s-1"]]


@pytest.mark.parametrize("scope", ["call", "next", "steps", "trajectory", "group"])
@given(data=st.data())
@settings(max_examples=25)
def test_any_order_of_the_facts_says_the_same_in_the_end(scope, data):
    """Calls, completions, registrations and duplicates in any order, read in polls of any size: equal slots."""
    history = [
        facts.started("g", "t", metadata='{"n": 1}', envelope=facts.envelope(at_us=1)),
        *dialogue("t"),
        *dialogue("u"),
    ]
    if scope == "call":
        history = history[1:]  # its task is what was registered before it
    opened = facts.opened("g", expected_size=2, task="4")
    again = data.draw(st.lists(st.sampled_from(history), max_size=3))
    shuffled = data.draw(st.permutations([*history, *again]))
    plain, mixed = pooled_log([opened, *history]), pooled_log([opened, *shuffled])
    judge_all(plain, slot_of(scope), content)
    judge_all(
        mixed, slot_of(scope), content, records_max=data.draw(st.integers(1, 9)), steps_max=data.draw(st.integers(0, 9))
    )
    judge_all(mixed, slot_of(scope), content, records_max=data.draw(st.integers(1, 30)))
    assert slots(mixed) == slots(plain)


def lost(call):
    return replace(call, request=Edge(base_call_id="nobody", keep=5, suffix=b"x", full_length=6, full_digest="?"))


def with_request(call, text):
    return replace(call, request=Edge(suffix=text, full_length=len(text), full_digest=hashlib.sha256(text).hexdigest()))


BROKEN = {
    "lost base": (lost, "text_lost"),
    "invalid UTF-8": (
        lambda call: with_request(call, b'{"messages": [{"role": "user", "content": "\xff"}]}'),
        "unreadable",
    ),
    "not JSON": (lambda call: with_request(call, b"\x00\x01"), "unreadable"),
    "2 MB": (lambda call: with_request(call, body([{"role": "user", "content": "x" * 2_000_000}])), "too_large"),
    "no body": (lambda call: with_request(call, b""), "text_lost"),
    "a list": (lambda call: with_request(call, b"[1]"), "unreadable"),
}


@pytest.mark.parametrize("scope", ["call", "next", "steps", "trajectory", "group"])
@pytest.mark.parametrize("flaw", BROKEN)
def test_what_cannot_be_put_together_fails_with_a_word_and_the_next_is_served(scope, flaw):
    """Never an exception; its slot is claimed, so whoever waits learns it."""
    change, word = BROKEN[flaw]
    broken = [change(event) if getattr(event, "call_id", "") == "t-1" else event for event in dialogue("t", group="b")]
    good = [facts.opened("g", expected_size=1), *dialogue("u")]
    log = pooled_log([facts.opened("b", expected_size=1), *broken, *good])
    judge_all(log, slot_of(scope), content)
    said = slots(log)
    assert word in {value for (group, *_), value in said.items() if group == "b"}
    of_good = [value for (group, *_), value in said.items() if group == "g"]
    assert of_good
    assert all(isinstance(value, float) for value in of_good)


def test_a_nul_in_a_message_is_text():
    """As JSON writes it; the conversation is judged."""
    log = pooled_log(dialogue("t", ("a\x00b", "c")))
    judge_all(log, slot_of("trajectory"), content)
    assert [type(value) for value in slots(log).values()] == [float]


def test_calls_that_retention_removed_fail_and_those_that_are_left_are_judged():
    """By position: what the log no longer holds is a word."""
    log = pooled_log([*dialogue("t", group="a"), *dialogue("u", group="b")])
    log.delete_records({(log.settings.catalogue().name(CALLS), 0): 2})
    judge_all(log, slot_of("trajectory"), content)
    said = slots(log)
    assert said["a", "t", None] == "text_lost"
    assert isinstance(said["b", "u", None], float)


def test_bytes_that_are_no_event_are_passed_over():
    """The streams report them; the calls around them are judged."""
    log = pooled_log(dialogue("t"))
    log.append([Outgoing(topic=CALLS, key=b"g", value=b"\x00nonsense")])
    add_to(log, dialogue("v", group="h"))
    judge_all(log, slot_of("call"), content)
    assert len(slots(log)) == 6


def test_a_subject_above_the_bound_is_too_large():
    """Of all its calls together."""
    log = pooled_log(dialogue("t"))
    judge_all(log, slot_of("trajectory"), content, settings=RewardsSettings(subject_bytes_max=10))
    assert set(slots(log).values()) == {"too_large"}


def test_a_row_that_is_written_again_costs_nobody_anything():
    """As after each reward: nothing is asked, nothing is written."""
    history = dialogue("t")
    log = pooled_log(history)
    judge_all(log, slot_of("trajectory"), content)
    before = len(words(log))
    reward = words(log)[0]
    again = pooled_log([*history, reward, facts.reward("g", "t", 0.5, source="human:ann", name="thumb")])
    scorer = judge_all(again, slot_of("trajectory"), content)
    assert len(scorer.views) == 1
    assert before == 1


@pytest.mark.parametrize("scope", ["next", "steps", "trajectory", "group"])
@pytest.mark.parametrize("name", list("abcdef"))
def test_a_verdict_that_knew_a_later_call_outranks_the_one_that_did_not(scope, name):
    """Sessions that count no calls get one more after their end; the group was closed before. Ids do not decide."""
    calls, end = dialogue(name, group=name)[:-1], facts.completed(name, name, envelope=facts.envelope(at_us=99))
    log = pooled_log([*calls[:-1], end, facts.closed(name, (name,))])
    judge_all(log, slot_of(scope), content)
    early = slots(log)
    add_to(log, [*calls[:-1], end, facts.closed(name, (name,)), calls[-1]])
    judge_all(log, slot_of(scope), content)
    whole = pooled_log([*calls, end, facts.closed(name, (name,))])
    judge_all(whole, slot_of(scope), content)
    assert early
    assert slots(log) == slots(whole) != early


def test_tags_are_told_apart_from_their_join():
    """One tag with a comma is not two."""
    contents = [call_content(turn("t", 0, [], "x", tags=tags)) for tags in (("a,b",), ("a", "b"))]
    assert digest_of(contents[0]) != digest_of(contents[1])


@pytest.mark.parametrize("pure", [True, False])
@pytest.mark.parametrize("scope", ["call", "trajectory"])
def test_a_pure_scorer_sees_no_log_probabilities(scope, pure):
    """They are no content."""
    scorer = judge_all(pooled_log(dialogue("t")), slot_of(scope, pure=pure), content)
    assert {call.logprob_mean is None for view in scorer.views for call in view.calls} == {pure}
