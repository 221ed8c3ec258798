"""Calls that are joined by their messages: continued where that is sure, apart where it is not."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from claw_r1.gateway.callers.caller_fields import hints
from claw_r1.gateway.callers.continuation import OWNERS_MAX, Beginning, Continuations
from claw_r1.gateway.paths import Identity
from claw_r1.schemas.envelopes import new_id

OPENING = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]


class Agents:
    """Calls of one process."""

    def __init__(self, entries_max: int = 1000) -> None:
        self.continuations = Continuations(entries_max)
        self.awaiting: set[Identity] = set()

    def call(self, messages: Any, scope: str = "team", **fields: Any) -> tuple[Identity, Beginning]:
        joined = self.continuations.trajectory(
            scope, hints({"messages": messages, **fields}), self.awaiting.__contains__, fresh
        )
        assert joined is not None
        return joined

    def turn(self, messages: list[Any], says: str, **fields: Any) -> tuple[Identity, list[Any]]:
        """A call with its reply: whose it is, and the messages after it."""
        who, beginning = self.call(messages, **fields)
        reply = json.dumps({"id": "c", "choices": [{"message": said(says)}]}).encode()
        self.continuations.note_reply("team", who, beginning, [reply])
        return who, [*messages, said(says), {"role": "user", "content": "go on"}]


def fresh() -> Identity:
    name = new_id()
    return Identity(name, name)


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def test_a_conversation_goes_on() -> None:
    """However often, also where its client writes a tool's arguments with other spaces."""
    agents = Agents()
    first, second_turn = agents.turn(OPENING, "a")
    second, third_turn = agents.turn(second_turn, "b")
    third, _ = agents.turn(third_turn, "c")
    fourth, fifth_turn = agents.turn([*third_turn, said("c")], '{"a": 1}')
    fifth, _ = agents.turn([*fifth_turn[:-2], said('{"a":1}'), {"role": "user", "content": "x"}], "d")
    assert first == second == third == fourth == fifth


def test_a_conversation_goes_on_in_parts() -> None:
    """Clients that send texts back as parts (Strands) go on as others do, and are told apart as others are."""

    def parts(turn: list[Any], *texts: str) -> list[Any]:
        return [
            *turn[:-2],
            {"role": "assistant", "content": [{"type": "text", "text": text} for text in texts]},
            turn[-1],
        ]

    agents = Agents()
    (one, next1), (two, next2) = agents.turn(OPENING, "left"), agents.turn(OPENING, "right")
    assert one != two
    assert agents.turn(parts(next2, "right"), "x")[0] == two
    who, third = agents.turn(parts(next1, "left"), "y")
    assert who == one
    assert agents.turn(parts(third, "y"), "z")[0] == one
    assert agents.turn(parts(next1, "from elsewhere"), "z")[0] not in (one, two)
    mark = {"type": "ephemeral", "ttl": "5m"}
    marked = [{"type": "text", "text": "left", "cache_control": mark}]
    assert agents.turn([*next1[:-2], {"role": "assistant", "content": marked}, OPENING[1]], "w")[0] == one


def test_an_answer_that_nobody_got_here_is_another_agents() -> None:
    """Another process answered an agent that began alike: the two are never one."""
    agents = Agents()
    one, _ = agents.turn(OPENING, "a")
    other, _ = agents.turn([*OPENING, said("from elsewhere"), {"role": "user", "content": "x"}], "d")
    assert one != other


def test_scopes_share_nothing() -> None:
    """Equal conversations of two scopes are two."""
    agents = Agents()
    longer = [*OPENING, said("a")]
    assert agents.call(OPENING)[0] != agents.call(longer, scope="other")[0]


def test_equal_beginnings_are_told_apart_by_their_replies() -> None:
    """Two agents with one task, at once: each goes on from the answer that it got."""
    agents = Agents()
    (one, next1), (two, next2) = agents.turn(OPENING, "left"), agents.turn(OPENING, "right")
    assert one != two
    assert (agents.turn(next2, "x")[0], agents.turn(next1, "y")[0]) == (two, one)


def test_equal_answers_leave_two_agents_apart() -> None:
    """While both wait to go on nobody can tell whose call it is, so it is of neither; the one that went on is out of question."""
    agents = Agents()
    (one, next1), (two, _) = agents.turn(OPENING, "same"), agents.turn(OPENING, "same")
    assert agents.turn(next1, "x")[0] not in (one, two)
    later = Agents()
    one, next1 = later.turn(OPENING, "same")
    assert later.turn(next1, "x")[0] == one
    two, next2 = later.turn(OPENING, "same")
    assert later.turn([*next2[:-1], {"role": "user", "content": "other"}], "x")[0] == two != one


def test_an_unknown_answer_is_of_nobody() -> None:
    """Of several agents with one beginning none got it."""
    agents = Agents()
    known = {agents.turn(OPENING, word)[0] for word in ("a", "b")}
    assert agents.call([*OPENING, said("c"), {"role": "user", "content": "x"}])[0] not in known


def test_a_system_text_alone_joins_nobody() -> None:
    """Many conversations begin with it."""
    agents = Agents()
    assert agents.call(OPENING[:1])[0] != agents.call(OPENING)[0] != agents.call([OPENING[0], said("x")])[0]
    assert agents.call(OPENING[1:], system="one")[0] != agents.call([*OPENING[1:], said("a")], system="two")[0]


def test_equal_requests_are_two_unless_the_first_came_to_nothing() -> None:
    """A request has to go on; one whose reply was lost is asked again."""
    agents = Agents()
    one, two = agents.call(OPENING)[0], agents.call(OPENING)[0]
    assert one != two
    agents.awaiting.add(one)
    assert agents.call(OPENING)[0] == one


def test_marks_that_move_do_not_matter() -> None:
    """Cache marks stand on the newest message of each request; a text as input is a user's message."""
    agents = Agents()
    marked = {"type": "text", "text": "u", "cache_control": {"type": "ephemeral"}}
    plain = {"type": "text", "text": "u"}
    one = agents.call([{"role": "user", "content": [marked]}])[0]
    assert agents.call([{"role": "user", "content": [plain]}, said("a"), OPENING[1]])[0] == one
    assert agents.call([{"role": "user", "content": "u"}, said("a")])[0] == one
    systems = (
        "s",
        [{"type": "text", "text": "s"}],
        [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
    )
    who, turns = agents.turn(OPENING[1:], "a", system=systems[0])
    for system in (*systems[1:], systems[0]):
        goes_on_as, turns = agents.turn(turns, "b", system=system)
        assert goes_on_as == who
    whole = agents.continuations.trajectory("r", hints({"input": "hi"}), agents.awaiting.__contains__, fresh)
    items = [{"role": "user", "content": "hi"}, {"type": "function_call"}, {"type": "function_call_output"}]
    assert whole is not None
    goes_on = agents.continuations.trajectory("r", hints({"input": items}), agents.awaiting.__contains__, fresh)
    assert goes_on is not None
    assert goes_on[0] == whole[0]


def test_a_reply_is_gone_on_from_by_its_id() -> None:
    """Of its scope alone; what a request says besides then joins nobody."""
    agents = Agents()
    who, beginning = agents.call(OPENING)
    agents.continuations.note_reply("team", who, beginning, [b'{"id": "resp_1"}'])
    more = [{"role": "user", "content": "more"}]
    assert agents.call(more, previous_response_id="resp_1")[0] == who
    assert agents.call(more, scope="other", previous_response_id="resp_1")[0] != who
    assert agents.call([*more, said("a")])[0] != who
    assert agents.call(more, previous_response_id="unknown")[0] != who
    agents.continuations.note_reply("team", who, beginning, [b"{", b"[]"])


def test_odd_messages_join_nothing() -> None:
    """Nothing a client sends as messages breaks a call."""
    deep: list[Any] = []
    for _ in range(500):
        deep = [deep]
    agents = Agents()
    for messages in ([], "", None, 5, {}, [deep]):
        fields = hints({"messages": messages})
        joined = agents.continuations.trajectory("s", fields, agents.awaiting.__contains__, fresh)
        assert joined is None or messages == ""
    assert agents.call([None, 5, "x"])[0] == agents.call([None, 5, "x", []])[0]


def test_memory_is_bounded() -> None:
    """The oldest beginnings go, and with them only what they joined; too many of one beginning join nobody."""
    agents = Agents(entries_max=3)
    one, next1 = agents.turn([{"role": "user", "content": "first"}], "a")
    for number in range(3):
        agents.turn([{"role": "user", "content": str(number)}], "a")
    assert agents.call(next1)[0] != one
    assert len(agents.continuations._owners) == 3
    crowd = Agents()
    turns = [crowd.turn(OPENING, str(number)) for number in range(OWNERS_MAX + 1)]
    assert crowd.call(turns[-1][1])[0] not in {who for who, _ in turns}


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab")), max_size=30))
def test_two_agents_are_never_merged(moves: list[tuple[int, str]]) -> None:
    """Agents with one first prompt, in any order and with any replies: no trajectory holds calls of two."""
    agents, talks, owners = Agents(), dict.fromkeys(range(4), OPENING), dict[Identity, int]()
    for agent, word in moves:
        who, talks[agent] = agents.turn(talks[agent], word)
        assert owners.setdefault(who, agent) == agent
