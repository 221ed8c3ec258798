"""What is recognised without parsing is what a parser finds: chunks of streams, and whole replies."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.call_protocol import CallRequest, EngineReply
from gateway.openai.accumulator import Accumulator
from gateway.openai.fast_chunks import shape_of
from gateway.openai.fast_reply import taken_apart
from gateway.openai.request import parse_chat
from gateway.openai.sse import without_fields
from gateway.openai.stream_filter import StreamFilter

DONE = b"data: [DONE]\n\n"
TEXT = st.text(max_size=6) | st.sampled_from(
    ['"},"logprobs":{"content":[', ']},"finish_reason":null,"token_ids":[7', "\\", '"', "\n", "\r", "]}]}", "😀"]
)
TOKEN = st.fixed_dictionaries({"token": TEXT, "logprob": st.floats(-9, 0)}, optional={"top_logprobs": st.just([])})
NAMES = st.sampled_from(["content", "content", "content", "reasoning", "role"])


@st.composite
def chunks(draw: st.DrawFn) -> list[bytes]:
    """A stream of one or two choices, mostly of usual chunks."""
    ascii_only = draw(st.booleans())
    events = []
    for number in range(draw(st.integers(1, 8))):
        tokens = draw(st.lists(TOKEN, min_size=1, max_size=draw(st.sampled_from([1, 1, 1, 3]))))
        ids = draw(st.sampled_from([[5], [5], [5], [5, 6], [], None]))
        choice = {
            "index": draw(st.sampled_from([0, 0, 0, 1])),
            "delta": {draw(NAMES): draw(TEXT)},
            "logprobs": draw(st.sampled_from([{"content": tokens}, {"content": tokens}, None])),
            "finish_reason": None if number else draw(st.sampled_from([None, "stop"])),
            "token_ids": ids,
        }
        fields = {"id": "c", "object": "chat.completion.chunk", "choices": [choice]}
        event = json.dumps(fields, separators=(",", ":"), ensure_ascii=ascii_only)
        events.append(b"data: " + event.encode() + b"\n\n")
    return events


def asked(*, token_ids: bool, logprobs: bool) -> CallRequest:
    """A request for a stream."""
    return parse_chat(json.dumps({"messages": [], "return_token_ids": token_ids, "logprobs": logprobs}).encode())


def one_by_one(events: list[bytes], request: CallRequest) -> EngineReply:
    """What the chunks add up to when each of them is parsed alone."""
    accumulator = Accumulator(request)
    for event in events:
        accumulator.add(event)
    return accumulator.reply(ended=True)


@given(chunks(), st.booleans(), st.booleans(), st.lists(st.integers(0, 2000)))
def test_usual_chunks_come_out_as_any_others(
    events: list[bytes], token_ids: bool, logprobs: bool, cuts: list[int]
) -> None:
    """The client gets what the cutter makes of each chunk, and the accumulator of runs is that of the chunks alone."""
    request = asked(token_ids=token_ids, logprobs=logprobs)
    stream = StreamFilter(request)
    for event in events:
        assert stream.feed(event) == without_fields(event, token_ids=not token_ids, logprobs=not logprobs)
    stream.feed(DONE)
    in_pieces, whole, marks = StreamFilter(request), b"".join([*events, DONE]), [0, *sorted(cuts), 1 << 20]
    for begin, end in pairwise(marks):  # wherever the network cut it
        in_pieces.feed(whole[begin:end])
    assert in_pieces.whole == stream.whole
    assert in_pieces.reply(interrupted=False) == stream.reply(interrupted=False) == one_by_one(events, request)


def test_usual_chunks_are_recognised() -> None:
    """By the shape of the first, all chunks of an ordinary stream are read without a parser, but the last, with its reason."""
    events = [
        b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"a\\u00e9\\n"},"logprobs":{"content":[{"token":"t",'
        b'"logprob":-0.5}]},"finish_reason":%b,"token_ids":[%d]}]}\n\n' % (reason, number)
        for number, reason in enumerate([b"null"] * 299 + [b'"stop"'])
    ]
    shape = shape_of(events[0])
    assert shape is not None
    assert [number for number, event in enumerate(events) if shape.read(event) is None] == [299]


@pytest.mark.parametrize(
    "damage",
    [(b'"content":"b"', b'"content":"\\x"'), (b'"logprob":-1', b'"logprob":-'), (b'"b"', b'"b\n"'), (b"[8]", b"[08]")],
)
def test_a_damaged_chunk_in_a_run_harms_no_other(damage: tuple[bytes, bytes]) -> None:
    """What is no JSON among usual chunks is named, and the others are taken as they are."""
    request = asked(token_ids=False, logprobs=False)
    stream = StreamFilter(request)
    usual = (
        b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"%b"},"logprobs":{"content":[{"token":"t",'
        b'"logprob":-1}]},"finish_reason":null,"token_ids":[%d]}]}\n\n'
    )
    events = [usual % (text, number) for number, text in enumerate((b"a", b"a", b"b", b"c"), 6)]
    events[2] = events[2].replace(*damage)
    for event in (*events, DONE):
        stream.feed(event)
    reply = stream.reply(interrupted=False)
    assert reply == one_by_one(events, request)
    assert "chunk_invalid" in reply.choices[0].missing


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"choices":[{"index":0,"delta":{"content":"a","x":1},"logprobs":{"content":[{}]},"token_ids":[1]}]}\n\n',
        b'data: {"choices":[{"index":0,"delta":{"content":"a"},"logprobs":null,"token_ids":[1]}]}\n\n',
        b'data: {"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[{}]},"token_ids":null}]}\n\n',
        b"data: [DONE]\n\n",
    ],
)
def test_what_has_no_shape(event: bytes) -> None:
    """Chunks with more in their delta, or without tokens, are for the parser."""
    assert shape_of(event) is None


VALUE = st.recursive(
    st.none() | st.integers(-9, 9) | TEXT,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["token_ids", "logprobs", "prompt_token_ids", "finish_reason", "x"]), inner, max_size=2
        )
    ),
    max_leaves=6,
)


@given(VALUE, VALUE, st.lists(TOKEN, max_size=3), st.lists(st.integers(0, 9), max_size=3), st.booleans(), st.data())
def test_a_reply_in_parts_is_the_reply(
    message: Any, usage: Any, tokens: list[Any], ids: list[int], present: bool, data: st.DataObject
) -> None:
    """Whatever stands in a reply: taken apart it means what it meant, and what is shown lacks nothing but what was cut."""
    choice = {"index": 0, "message": message, "logprobs": {"content": tokens}, "finish_reason": "stop"}
    choice |= {"token_ids": ids} if present else {"stop_reason": None}
    whole = {"id": "c", "choices": [choice], "usage": usage, "prompt_token_ids": ids}
    for name in data.draw(st.sets(st.sampled_from(["prompt_token_ids", "usage"]))):
        del whole[name]
    raw = json.dumps(whole, separators=(",", ":")).encode()
    parts = taken_apart(raw)
    if parts is None:
        assert not (present and message is None and usage is None and "prompt_token_ids" in whole and "usage" in whole)
        return
    assert parts.without(token_ids=False, logprobs=False) == raw
    assert (parts.response_ids, parts.prompt_ids) == (ids, ids)
    assert parts.logprobs == [token["logprob"] for token in tokens]
    del whole["prompt_token_ids"], choice["token_ids"]
    assert json.loads(parts.without(token_ids=True, logprobs=True)) == {
        **whole,
        "choices": [{**choice, "logprobs": None}],
    }


@given(VALUE, VALUE, st.lists(TOKEN, max_size=3), st.lists(st.integers(0, 9), max_size=3))
def test_a_text_completion_in_parts_is_the_reply(said: Any, more: Any, tokens: list[Any], ids: list[int]) -> None:
    """The same of completions, whose choice names the prompt's ids: what was cut is null."""
    logprobs = {"token_logprobs": [token["logprob"] for token in tokens], "tokens": [said]}
    choice = {"index": 0, "text": said, "logprobs": logprobs, "finish_reason": "stop", "token_ids": ids}
    whole = {"id": "c", "choices": [{**choice, "prompt_logprobs": more, "prompt_token_ids": ids}], "usage": more}
    raw = json.dumps(whole, separators=(",", ":")).encode()
    parts = taken_apart(raw, text=True)
    if parts is None:
        assert not (isinstance(said, str) and more is None)
        return
    assert parts.without(token_ids=False, logprobs=False, nulls=True) == raw
    assert (parts.response_ids, parts.prompt_ids) == (ids, ids)
    assert parts.logprobs == logprobs["token_logprobs"]
    nulls = dict.fromkeys(("token_ids", "prompt_token_ids", "logprobs"))
    shown = {**whole, "choices": [{**choice, "prompt_logprobs": more, **nulls}]}
    assert json.loads(parts.without(token_ids=True, logprobs=True, nulls=True)) == shown
