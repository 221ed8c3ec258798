"""One request and one reply of each protocol, for promises that hold in all of them."""

import json
from collections.abc import Iterable
from typing import NamedTuple

from claw_r1.gateway.tokens.packed_protocol import Assembly
from claw_r1.schemas.http import TOKENS_HEADER
from tests.gateway import engine, packed
from tests.gateway.engine import Json, Received, Reply
from tests.gateway.openai import responses_wire

MESSAGES: list[Json] = [{"role": "user", "content": "hi " * 200}]


class Spoken(NamedTuple):
    """A protocol as a client and its engine speak it."""

    name: str
    end: str
    """Of the client's path."""
    ask: Json
    body: Json
    """A whole reply; a stream adds up to it."""
    begun: tuple[bytes, ...]
    """Events with all that is said."""
    tail: tuple[bytes, ...]
    """Events between what is said and the last one."""
    last: bytes
    """What no client may see before its call is acknowledged."""
    unacknowledged: bytes
    """What the error looks like that comes instead."""

    @property
    def path(self) -> str:
        return f"/t1/g1/v1/{self.end}"

    @property
    def sent(self) -> bytes:
        """A stream as its client sees it."""
        return b"".join((*self.begun, *self.tail, self.last))

    def pieces(self, *, hands_over: bool = True) -> tuple[bytes, ...]:
        """A stream as a worker writes it."""
        return (*self.begun, *([packed.comment()] if hands_over else []), *self.tail, self.last)

    def reply(self, *, stream: bool, hands_over: bool) -> Reply:
        """Whole or streamed, with tokens or without."""
        if stream:
            return Reply(pieces=self.pieces(hands_over=hands_over))
        return engine.whole(self.body) if hands_over else Reply(self.body)


def added_up(assembly: Assembly, events: Iterable[Json]) -> Json | None:
    """What these events of a stream add up to."""
    for event in events:
        assembly.take(event)
    return assembly.whole()


def answer(received: Received) -> Reply:
    """What an engine of all protocols answers; its tokens come packed where somebody asks for that."""
    spoken = next((each for each in SPEAKING if received.path == f"/v1/{each.end}"), None)
    hands_over = TOKENS_HEADER in received.headers
    if spoken is None or (spoken is CHAT and not hands_over):
        return engine.answer(received)
    return spoken.reply(stream=bool(received.json.get("stream")), hands_over=hands_over)


def data(fields: Json) -> bytes:
    """An event of OpenAI's streams."""
    return b"data: " + json.dumps(fields, separators=(",", ":")).encode() + b"\n\n"


def named(fields: Json) -> bytes:
    """An event of Anthropic's streams, which say its type twice."""
    return b"event: " + fields["type"].encode() + b"\n" + data(fields)


def _chat(delta: Json, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return data({"id": "c", "object": "chat.completion.chunk", "model": "tiny", "choices": [choice]})


def _text(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
    return data({"id": "c", "object": "text_completion", "model": "tiny", "choices": [choice]})


def _spoken(text: str) -> bytes:
    return named({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}})


OPENAI = {"tail": (), "last": b"data: [DONE]\n\n", "unacknowledged": b'"code":"not_captured"'}
STOPPED: Json = {"index": 0, "logprobs": None, "finish_reason": "stop"}
MESSAGE: Json = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "tiny"}
CHAT = Spoken(
    name="chat",
    end="chat/completions",
    ask={"model": "tiny", "messages": MESSAGES},
    body={
        "id": "c",
        "object": "chat.completion",
        "model": "tiny",
        "choices": [{**STOPPED, "message": {"role": "assistant", "content": "hello"}}],
    },
    begun=(_chat({"role": "assistant", "content": "he"}), _chat({"content": "llo"}), _chat({}, "stop")),
    **OPENAI,  # type: ignore[arg-type]  # fields by name, of any type
)
COMPLETIONS = Spoken(
    name="completions",
    end="completions",
    ask={"model": "tiny", "prompt": "hi " * 200},
    body={"id": "c", "object": "text_completion", "model": "tiny", "choices": [{**STOPPED, "text": "hello"}]},
    begun=(_text("he"), _text("llo", "stop")),
    **OPENAI,  # type: ignore[arg-type]  # fields by name, of any type
)
ANTHROPIC = Spoken(
    name="messages",
    end="messages",
    ask={"model": "tiny", "max_tokens": 9, "messages": MESSAGES},
    body={
        **MESSAGE,
        "content": [{"type": "text", "text": "hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 4, "output_tokens": 3},
    },
    begun=(
        named({"type": "message_start", "message": {**MESSAGE, "usage": {"input_tokens": 4, "output_tokens": 0}}}),
        named({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        _spoken("he"),
        _spoken("llo"),
    ),
    tail=(
        named({"type": "content_block_stop", "index": 0}),
        named(
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                "usage": {"input_tokens": 4, "output_tokens": 3},
            }
        ),
    ),
    last=named({"type": "message_stop"}),
    unacknowledged=b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"',
)
RESPONSES = Spoken(
    name="responses",
    end="responses",
    ask=responses_wire.ASK,
    body=responses_wire.response(),
    begun=responses_wire.BEGUN,
    tail=responses_wire.TAIL,
    last=responses_wire.LAST,
    unacknowledged=b'"code":"not_captured"',
)
SPEAKING = (CHAT, COMPLETIONS, RESPONSES, ANTHROPIC)
