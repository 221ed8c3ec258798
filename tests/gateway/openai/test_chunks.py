"""Chunks put together: lists grow, whatever stands where in the others."""

from typing import Any

import pytest

from gateway.openai.chunks import completion_of


def chunk(**choice: Any) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": 0, **choice}]}


@pytest.mark.parametrize("nothing", [None, {}, {"content": None}, {"content": "x"}])
def test_log_probabilities_grow_beside_what_is_none(nothing: Any) -> None:
    """OpenAI's refusals have null where others have a list; a null takes nothing back."""
    chunks = [chunk(logprobs=nothing), chunk(logprobs={"content": [1], "refusal": None}), chunk(logprobs=nothing)]
    chunks += [chunk(logprobs={"content": [2], "refusal": [3]}, token_ids=[7]), chunk(token_ids=None)]
    whole = completion_of([*chunks, chunk(token_ids=[8])], "chat.completion")
    assert whole is not None
    (choice,) = whole["choices"]
    assert choice["logprobs"]["content"] == [1, 2]
    assert choice["logprobs"]["refusal"] == [3]
    assert choice["token_ids"] == [7, 8]


def test_what_came_is_not_changed() -> None:
    """Chunks stay as they were read."""
    first = chunk(logprobs={"content": [1]}, token_ids=[1])
    completion_of([first, chunk(logprobs={"content": [2]}, token_ids=[2])], "chat.completion")
    assert first == chunk(logprobs={"content": [1]}, token_ids=[1])
