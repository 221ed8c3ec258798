"""Calls of a trajectory read as one conversation."""

import orjson

from claw.show.conversation import Call, conversation


def call(messages: list[str], reply: str) -> Call:
    roles = ["user", "assistant"]
    asked = [{"role": roles[i % 2], "content": text} for i, text in enumerate(messages)]
    answer = {"choices": [{"message": {"role": "assistant", "content": reply}}]}
    return Call(orjson.dumps({"messages": asked}), orjson.dumps(answer))


def texts(calls: list[Call]) -> list[str]:
    return [message["content"] for message in conversation(calls)]


def test_a_growing_conversation_is_shown_once() -> None:
    """What a request repeats is not shown again."""
    assert texts([call(["a"], "b"), call(["a", "b", "c"], "d")]) == ["a", "b", "c", "d"]


def test_a_rewritten_history_is_a_branch() -> None:
    """A request that does not continue what was said is marked."""
    assert texts([call(["a"], "b"), call(["a", "x", "c"], "d")]) == ["a", "b", "— a branch —", "x", "c", "d"]


def test_a_body_that_is_no_json_is_left_out() -> None:
    """Garbage in a captured body does not break the reader."""
    assert conversation([Call(b"\xff", b"[]"), call(["a"], "b")])[0]["content"] == "a"
