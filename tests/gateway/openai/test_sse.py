"""Events as bytes: cut, and freed of what nobody asked for."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_r1.gateway.openai.sse import spans_comment, without_comment, without_fields
from claw_r1.gateway.tokens.sse import Splitter, data_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 80), 1 << 80) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["token_ids", "logprobs", "choices", 'a"', "\\", "x,"]), inner, max_size=3)
    ),
    max_leaves=10,
)
CHOICE = st.dictionaries(st.sampled_from(["token_ids", "logprobs", "delta", "index", "stop_reason"]), JSON)
CHUNK = st.dictionaries(st.sampled_from(["id", "prompt_token_ids", "usage", "token_ids"]), JSON).flatmap(
    lambda rest: st.lists(CHOICE, max_size=3).map(lambda choices: {**rest, "choices": choices})
)


def expected(chunk: dict[str, Any], *, token_ids: bool, logprobs: bool) -> dict[str, Any]:
    """What the client should parse."""
    top = {name: value for name, value in chunk.items() if not (token_ids and name == "prompt_token_ids")}
    choices = []
    for choice in chunk["choices"]:
        kept = {name: value for name, value in choice.items() if not (token_ids and name == "token_ids")}
        if logprobs and "logprobs" in kept:
            kept["logprobs"] = None
        choices.append(kept)
    return {**top, "choices": choices}


@given(CHUNK, st.booleans(), st.booleans(), st.sampled_from([None, 1]), st.booleans())
def test_cuts_exactly_the_fields(
    chunk: dict[str, Any], token_ids: bool, logprobs: bool, indent: int | None, ascii_only: bool
) -> None:
    """For any chunk: the JSON without the fields, at their places only; names inside texts and elsewhere stay."""
    separators = (" , ", ": ") if indent else (",", ":")
    event = b"data: " + json.dumps(chunk, separators=separators, ensure_ascii=ascii_only).encode() + b"\n\n"
    cut = without_fields(event, token_ids=token_ids, logprobs=logprobs)
    assert json.loads(data_of(cut)) == expected(chunk, token_ids=token_ids, logprobs=logprobs)
    if not (token_ids or logprobs):
        assert cut == event


def test_nothing_but_the_fields_changes() -> None:
    """Numbers, escapes, spaces and order are the engine's own bytes."""
    before = (
        b'data: {"id":"c","n":1.10e+2,"choices":[{"index":0,"delta":{"content":"\\u00e9 \\"token_ids\\":[1] \xf0\x9f\x98\x80"},'
        b'"logprobs":{"content":[{"token":"}]\\"","logprob":-0.50}]},"finish_reason":null,"token_ids":[1, 2]}]}\n\n'
    )
    after = before.replace(b'{"content":[{"token":"}]\\"","logprob":-0.50}]}', b"null").replace(
        b',"token_ids":[1, 2]', b""
    )
    assert without_fields(before, token_ids=True, logprobs=True) == after


@pytest.mark.parametrize(
    "event", [b'data: {"token_ids":[1\n\n', b'data: "token_ids" {\n\n', b'data: {"a" "token_ids"}\n\n']
)
def test_what_is_no_json_is_refused(event: bytes) -> None:
    """An event that cannot be cut is not changed by guess."""
    with pytest.raises(ValueError, match="JSON"):
        without_fields(event, token_ids=True, logprobs=True)


def test_deep_or_long_values_cost_linear_time() -> None:
    """A hostile event neither hangs nor overflows."""
    for inside in (b"[" * 100_000, b'"' + b"\\" * 100_001, b'{"a":' * 50_000, b'"x",' * 100_000):
        event = b'data: {"token_ids":' + inside + b"\n\n"
        with pytest.raises(ValueError, match="JSON"):
            without_fields(event, token_ids=True, logprobs=True)


@given(
    st.lists(st.sampled_from(["data: é😀", "data: x", ": comment", "event: y"]), max_size=8),
    st.sampled_from(["\n", "\r\n"]),
    st.data(),
)
def test_where_the_network_cuts_does_not_matter(lines: list[str], end: str, data: st.DataObject) -> None:
    """Any cut of the bytes, inside characters too, gives the same events, and no byte is lost."""
    stream = "".join(line + end + end for line in lines).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    splitter = Splitter()
    events = [event for piece in pieces for event in splitter.feed(piece)]
    assert b"".join(events) + splitter.rest == stream
    assert [data_of(event) for event in events if data_of(event)] == [
        line[6:].encode() for line in lines if line.startswith("data")
    ]


def test_comment_is_read_and_taken_out() -> None:
    """The worker's comment disappears, alone or inside an event; other comments stay."""
    comment = b': claw.weight_versions={"0":[]}\n'
    assert spans_comment(comment + b"\n") == b'{"0":[]}'
    assert without_comment(comment + b"\n") == b""
    assert without_comment(comment + b"data: x\n\n") == b"data: x\n\n"
    assert without_comment(b": ping\n\n") == b": ping\n\n"
    assert spans_comment(b"data: : claw.weight_versions=x\n\n") is None


@given(
    st.lists(st.sampled_from([b"data: x", b"\n", b"\n\n", b"\r\n\r\n", b"\r", b":", b"y"]), max_size=30),
    st.integers(1, 5),
)
def test_pieces_of_any_size_are_the_same_events(parts: list[bytes], size: int) -> None:
    """Whatever line ends a stream has: nothing is lost, and what is cut off is the same however it came."""
    raw = b"".join(parts).replace(b"\r\n", b"\n") if size % 2 else b"".join(parts)
    whole, cut = Splitter(), Splitter()
    expected = whole.feed(raw)
    events = [event for at in range(0, len(raw), size) for event in cut.feed(raw[at : at + size])]
    assert b"".join(events) + cut.rest == raw == b"".join(expected) + whole.rest
    if b"\r" not in raw:
        assert (events, cut.rest) == (expected, whole.rest)
    assert cut.is_empty is not bool(cut.rest)
