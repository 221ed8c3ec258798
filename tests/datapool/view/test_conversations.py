"""Captured bodies read as chat messages, and the calls of a trajectory as one conversation."""

import orjson
import pytest

from datapool.view.conversations import conversation, function_parameters, messages, tools

Call = tuple[bytes, bytes]


def call(said: list[str], reply: str) -> Call:
    roles = ["user", "assistant"]
    request = [{"role": roles[i % 2], "content": text} for i, text in enumerate(said)]
    answer = {"choices": [{"message": {"role": "assistant", "content": reply}}]}
    return orjson.dumps({"messages": request}), orjson.dumps(answer)


def texts(calls: list[Call]) -> list[str]:
    return [turn["content"] for turn in conversation(calls)]


def test_a_growing_conversation_is_shown_once() -> None:
    """What a request repeats is not shown again."""
    assert texts([call(["a"], "b"), call(["a", "b", "c"], "d")]) == ["a", "b", "c", "d"]


def test_a_rewritten_history_is_a_branch() -> None:
    """A request that does not continue what was said is marked."""
    assert texts([call(["a"], "b"), call(["a", "x", "c"], "d")]) == ["a", "b", "— a branch —", "x", "c", "d"]


def test_a_body_that_is_no_json_is_left_out() -> None:
    """Garbage in a captured body does not break the reader."""
    assert conversation([(b"\xff", b"[]"), call(["a"], "b")])[0]["content"] == "a"


def test_a_tool_call_without_words_is_shown_as_it_is() -> None:
    """Where a message has no content, its tool calls are what it says."""
    reply = b'{"choices": [{"message": {"role": "assistant", "content": null, "tool_calls": [{"id": "x"}]}}]}'
    assert conversation([(b'{"messages": []}', reply)]) == [{"role": "assistant", "content": '[{"id":"x"}]'}]


@pytest.mark.parametrize(
    "body", [b"null", b"[1]", b'{"messages": [1], "choices": [1], "tools": [1]}', b'{"choices": []}']
)
def test_json_that_is_no_chat_breaks_nothing(body: bytes) -> None:
    """Strangers send anything: there are no messages and no functions in it."""
    assert messages(body, body) is None
    assert conversation([(body, body)]) == []
    assert not function_parameters(body)


def test_bodies_of_both_protocols_become_messages() -> None:
    """OpenAI's and Anthropic's chats give the same kind of messages; anything else gives none."""
    request = b'{"messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "function"}]}'
    answer = (
        b'{"choices": [{"index": 1, "message": {"role": "assistant", "content": null, "tool_calls": [{"id": "x"}]}}]}'
    )
    chat = messages(request, answer, 1)
    assert chat is not None
    assert [m["role"] for m in chat] == ["user", "assistant"]
    assert (chat[1]["content"], chat[1]["tool_calls"]) == (None, '[{"id":"x"}]')
    assert tools(request) == '[{"type":"function"}]'
    reply = b'{"role": "assistant", "content": [{"type": "text", "text": "hello"}]}'
    chat = messages(b'{"system": "be kind", "messages": [{"role": "user", "content": "hi"}]}', reply)
    assert chat is not None
    assert [m["role"] for m in chat] == ["system", "user", "assistant"]
    assert messages(b'{"prompt": "once"}', b'{"choices": [{"text": "upon"}]}') is None
    assert messages(b"\xff", b"") is None
