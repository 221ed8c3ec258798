"""Chunks put together: lists grow, whatever stands where in the others."""

from typing import Any

import pytest

from claw_r1.gateway.openai.chunks import StreamedCompletion
from tests.gateway.speaking import added_up


def chunk(**choice: Any) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": 0, **choice}]}


@pytest.mark.parametrize("nothing", [None, {}, {"content": None}, {"content": "x"}, True, 1.5, "x", [1]])
def test_log_probabilities_grow_beside_what_is_none(nothing: Any) -> None:
    """OpenAI's refusals have null where others have a list; what is no list takes nothing back."""
    chunks = [chunk(logprobs=nothing), chunk(logprobs={"content": [1], "refusal": None}), chunk(logprobs=nothing)]
    chunks += [chunk(logprobs={"content": [2], "refusal": [3]}, token_ids=[7]), chunk(token_ids=None)]
    whole = added_up(StreamedCompletion("chat.completion"), [*chunks, chunk(token_ids=[8])])
    assert whole is not None
    (choice,) = whole["choices"]
    assert choice["logprobs"]["content"] == [1, 2]
    assert choice["logprobs"]["refusal"] == [3]
    assert choice["token_ids"] == [7, 8]


def call(text: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"arguments": text}, **fields}


@pytest.mark.parametrize(
    "later",
    [{"content": "", "tool_calls": []}, {"role": "", "tool_calls": [call("", index=0, id="")]}, {"content": None}],
)
def test_a_later_chunk_without_anything_takes_nothing_back(later: dict[str, Any]) -> None:
    """Servers add an empty list, or an empty id, to ordinary and last chunks."""
    deltas = [{"role": "assistant", "tool_calls": [call('{"a"', index=0, id="call_1")]}, later]
    deltas.append({"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]})
    whole = added_up(StreamedCompletion("chat.completion"), [chunk(delta=delta) for delta in (*deltas, later)])
    assert whole is not None
    message = whole["choices"][0]["message"]
    assert (message["role"], message["tool_calls"]) == ("assistant", [call('{"a":1}', index=0, id="call_1")])


def test_tool_calls_without_an_index_are_one_more_each() -> None:
    """Some servers send each call whole, in a chunk of its own."""
    calls = [call("{}", id="call_1"), call("[]", id="call_2")]
    whole = added_up(StreamedCompletion("chat.completion"), [chunk(delta={"tool_calls": [each]}) for each in calls])
    assert whole is not None
    assert whole["choices"][0]["message"]["tool_calls"] == calls


def test_what_came_is_not_changed() -> None:
    """Chunks stay as they were read."""
    first = chunk(logprobs={"content": [1]}, token_ids=[1])
    added_up(StreamedCompletion("chat.completion"), [first, chunk(logprobs={"content": [2]}, token_ids=[2])])
    assert first == chunk(logprobs={"content": [1]}, token_ids=[1])
