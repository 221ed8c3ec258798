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


def test_what_came_is_not_changed() -> None:
    """Chunks stay as they were read."""
    first = chunk(logprobs={"content": [1]}, token_ids=[1])
    added_up(StreamedCompletion("chat.completion"), [first, chunk(logprobs={"content": [2]}, token_ids=[2])])
    assert first == chunk(logprobs={"content": [1]}, token_ids=[1])
