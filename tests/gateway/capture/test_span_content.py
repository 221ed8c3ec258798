"""What of a conversation a span holds: every part of every protocol in the conventions' shape, up to a bound."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_r1.gateway.capture.span_content import CHARACTERS_MAX, newest, parts_of
from claw_r1.schemas.json_values import JsonDict

TEXT = {"type": "text", "content": "hi"}
CALL = {"id": "c", "type": "function", "function": {"name": "run", "arguments": '{"a": 1}'}}
ANY = st.recursive(
    st.none() | st.booleans() | st.text(max_size=5), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@pytest.mark.parametrize(
    ("message", "parts"),
    [
        ({"role": "user", "content": "hi"}, [TEXT]),
        ({"role": "user", "content": ""}, []),
        ({"role": "assistant", "content": "hi", "reasoning": "hm"}, [{"type": "reasoning", "content": "hm"}, TEXT]),
        (
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            [{"type": "tool_call", "id": "c", "name": "run", "arguments": '{"a": 1}'}],
        ),
        (
            {"role": "tool", "tool_call_id": "c", "content": "2"},
            [{"type": "tool_call_response", "id": "c", "response": "2"}],
        ),
        (
            {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": "x" * 9}]},
            [TEXT, {"type": "image_url"}],
        ),
    ],
)
def test_a_message_becomes_the_parts_of_the_conventions(message: JsonDict, parts: list[JsonDict]) -> None:
    assert parts_of(message) == parts


@given(st.dictionaries(st.sampled_from(["role", "content", "tool_calls", "reasoning", "tool_call_id"]), ANY))
def test_any_message_becomes_json(message: JsonDict) -> None:
    """Bodies are anybody's: nothing is raised, and the whole is JSON that holds one message."""
    text, cut = newest([{"role": "user", "parts": parts_of(message)}])
    assert len(json.loads(text)) == 1
    assert not cut


@given(st.lists(st.integers(0, CHARACTERS_MAX + 9), max_size=9))
def test_the_newest_that_fit_are_kept_in_their_order(sizes: list[int]) -> None:
    messages: list[JsonDict] = [
        {"role": str(number), "parts": [{"content": "x" * size}]} for number, size in enumerate(sizes)
    ]
    text, cut = newest(reversed(messages))
    kept = json.loads(text)
    assert len(text) <= CHARACTERS_MAX + 200
    assert cut == (len(kept) < len(messages) or kept != messages)
    assert [each["role"] for each in kept] == [each["role"] for each in messages[len(messages) - len(kept) :]]
    assert bool(kept) == bool(messages)


def test_a_message_too_long_by_itself_is_told_by_its_beginning() -> None:
    text, cut = newest([{"role": "user", "parts": [{"type": "text", "content": "a" * 2 * CHARACTERS_MAX}]}])
    (message,) = json.loads(text)
    assert message["role"] == "user"
    assert message["parts"][0]["content"].startswith('{"role":"user","parts":[{"type":"text","content":"aaa')
    assert cut
