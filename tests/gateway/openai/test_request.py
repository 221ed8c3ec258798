"""What was asked for, as the record has it."""

import json

import pytest

from claw_r1.gateway.openai.request import parse_chat


@pytest.mark.parametrize(
    ("fields", "temperature", "max_tokens"),
    [
        ({}, 1.0, None),
        ({"temperature": 0, "max_tokens": 5}, 0.0, 5),
        ({"temperature": 0.7, "max_tokens": 5, "max_completion_tokens": 7}, 0.7, 7),
        ({"max_output_tokens": 9}, 1.0, 9),
        ({"temperature": "hot", "max_tokens": "9"}, 1.0, None),
        ({"temperature": True, "max_tokens": True}, 1.0, None),
        ({"temperature": None, "max_tokens": -1}, 1.0, None),
        ({"max_tokens": 1 << 40}, 1.0, None),
        ({"temperature": [], "n": 0, "top_k": 1.5, "stop": 5, "seed": 1 << 64}, 1.0, None),
    ],
)
def test_what_was_asked_for_is_kept_and_the_engine_judges_it(
    fields: dict[str, object], temperature: float, max_tokens: int | None
) -> None:
    """Of a call whose engine does not say what it used, the record has the temperature and the limit that were asked for."""
    asked = parse_chat(json.dumps({"messages": [], **fields}).encode()).sampling
    assert (asked.temperature, asked.max_tokens) == (temperature, max_tokens)
