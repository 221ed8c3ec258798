"""JSON as no server should send it: lone surrogates, numbers that are none, and things nested deeper than our readers go."""

import json

from hypothesis import strategies as st

from claw_r1.consumers.rewards.scorer import GaveUp, Opinion

DEEP = "[" * 900 + "]" * 900
TOKEN = '{"token": "1", "logprob": 0, "top_logprobs": %s}'
LEAVES = [
    "null",
    "true",
    "NaN",
    "Infinity",
    "-Infinity",
    "1e300",
    "-7",
    "0",
    "7",
    "9" * 400,
    "9" * 5000,
    '"7"',
    '"a"',
    DEEP,
]
WORDS = [
    '"\\ud83d"',
    r'"bad \ud83d\n7"',
    r'"\udc00\ud800 7"',
    r'"\\ud83d"',
    '{"token": "1"}',
    TOKEN % "[null]",
    TOKEN % "5",
]
ODD_JSON = st.recursive(
    st.sampled_from(LEAVES + WORDS) | st.text(max_size=5).map(json.dumps),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda each: f"[{', '.join(each)}]")
        | st.dictionaries(
            st.sampled_from(["data", "probs", "content", "token", "top_logprobs"]), inner, max_size=3
        ).map(lambda fields: "{" + ", ".join(f'"{name}": {value}' for name, value in fields.items()) + "}")
    ),
    max_leaves=6,
)
"""Texts."""


def check_it_can_be_kept(end: Opinion | BaseException) -> None:
    """An opinion or a word for why there is none, with numbers and text that Avro takes."""
    assert isinstance(end, (Opinion, GaveUp)), repr(end)
    assert 0 <= end.tokens < 1 << 62
    assert "".join((end.detail, *end.calls)).encode().isascii() in (True, False)
    assert len(end.detail.splitlines()) <= 1
