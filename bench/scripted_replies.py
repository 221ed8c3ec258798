"""The replies of the scripted engine, by route: in vLLM's shape, of one size, with their tokens packed.

A response has 128 tokens after a prompt of 512.
"""

import json
from base64 import b64encode
from typing import NamedTuple

from claw_r1.schemas.arrays import pack_floats, pack_ids
from claw_r1.schemas.http import TOKENS_COMMENT, TOKENS_HEADER, TOKENS_MEMBER

PROMPT_IDS, RESPONSE_IDS = 512, 128
TEXT = "word " * RESPONSE_IDS * 5
SAMPLING = {
    "temperature": 1.0,
    "top_p": 1.0,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "top_k": 0,
    "repetition_penalty": 1.0,
    "max_tokens": 512,
    "seed": None,
    "n": 1,
    "stop": [],
    "constrained": False,
}


class Scripted(NamedTuple):
    """One route's replies, as bytes of HTTP."""

    whole: bytes
    """A reply, head and all."""
    chunks: list[bytes]
    """The chunks of a stream, in chunked framing; the first begins it."""
    ends: list[bytes]
    """The chunks that follow the last one."""


def compact(fields: object) -> bytes:
    """JSON as vLLM writes it."""
    return json.dumps(fields, separators=(",", ":")).encode()


def packed(tokens: int) -> bytes:
    """Returns the data that a worker hands over for a response of so many tokens."""
    choice = {
        "ids": b64encode(pack_ids([1000 + 7 * i for i in range(tokens)])).decode(),
        "logprobs": b64encode(pack_floats([-0.6931471824645996 - i / 97 for i in range(tokens)])).decode(),
        "spans": [["bench/1", 0, tokens]],
        "finish": "stop",
    }
    prompt = b64encode(pack_ids([100 + i for i in range(PROMPT_IDS)])).decode()
    return compact([{"prompt": prompt, "cached": 0, "sampling": SAMPLING, "choices": [choice]}])


def packed_routes() -> dict[bytes, Scripted]:
    """By the end of the path: each protocol with its tokens packed."""
    return {
        b"/chat/completions": _packed(
            _chat(_chat_choice(TEXT)),
            [_data(_chat_chunk({"index": 0, "delta": {"content": "word "}, "logprobs": None, "finish_reason": None}))],
            [_data(_chat_chunk({"index": 0, "delta": {}, "finish_reason": "stop"})), _framed(b"data: [DONE]\n\n")],
        ),
        b"/completions": _packed(
            {
                **_chat({"index": 0, "text": TEXT, "logprobs": None, "finish_reason": "stop"}),
                "object": "text_completion",
            },
            [_data(_chat_chunk({"index": 0, "text": "word ", "logprobs": None, "finish_reason": None}))],
            [_data(_chat_chunk({"index": 0, "text": "", "finish_reason": "stop"})), _framed(b"data: [DONE]\n\n")],
        ),
        b"/messages": _packed(MESSAGE, _message_chunks(), _message_ends()),
        b"/responses": _packed(RESPONSE, _response_chunks(), _response_ends()),
    }


USAGE = {"prompt_tokens": PROMPT_IDS, "completion_tokens": RESPONSE_IDS, "total_tokens": PROMPT_IDS + RESPONSE_IDS}
OWN_USAGE = {"input_tokens": PROMPT_IDS, "output_tokens": RESPONSE_IDS}
MESSAGE = {
    "id": "msg_bench",
    "type": "message",
    "role": "assistant",
    "model": "bench",
    "usage": OWN_USAGE,
    "content": [{"type": "text", "text": TEXT}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
}
OUTPUT = {
    "id": "msg_bench",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": TEXT, "annotations": []}],
}
RESPONSE = {
    "id": "resp_bench",
    "object": "response",
    "created_at": 1,
    "model": "bench",
    "status": "completed",
    "output": [OUTPUT],
    "usage": OWN_USAGE,
    "incomplete_details": None,
    "error": None,
}


def _message_chunks() -> list[bytes]:
    start = {**MESSAGE, "content": [], "stop_reason": None}
    begin = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "word "}}
    return [_event({"type": "message_start", "message": start}) + _event(begin), _event(delta)]


def _message_ends() -> list[bytes]:
    delta = {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": OWN_USAGE}
    return [_event({"type": "content_block_stop", "index": 0}) + _event(delta), _event({"type": "message_stop"})]


def _response_chunks() -> list[bytes]:
    start = {
        "type": "response.created",
        "sequence_number": 0,
        "response": {**RESPONSE, "output": [], "status": "in_progress"},
    }
    delta = {"type": "response.output_text.delta", "sequence_number": 3, "output_index": 0, "content_index": 0}
    return [_event(start), _event({**delta, "item_id": "msg_bench", "delta": "word "})]


def _response_ends() -> list[bytes]:
    done = {"type": "response.output_item.done", "sequence_number": 98, "output_index": 0, "item": OUTPUT}
    return [_event(done), _event({"type": "response.completed", "sequence_number": 99, "response": RESPONSE})]


def _packed(fields: dict[str, object], chunks: list[bytes], ends: list[bytes]) -> Scripted:
    member = b"," + TOKENS_MEMBER.encode() + packed(RESPONSE_IDS)
    body = compact(fields)[:-1] + member + b"}"
    comment = _framed(TOKENS_COMMENT.encode() + packed(RESPONSE_IDS) + b"\n\n")
    return Scripted(_head({TOKENS_HEADER: str(len(member))}, body), chunks, [comment, *ends])


def _chat(choice: dict[str, object]) -> dict[str, object]:
    head = {"id": "chatcmpl-bench", "object": "chat.completion", "created": 1, "model": "bench"}
    return {**head, "choices": [choice], "usage": USAGE}


def _chat_choice(text: str) -> dict[str, object]:
    message = {"role": "assistant", "content": text, "tool_calls": []}
    return {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop", "stop_reason": None}


def _chat_chunk(choice: dict[str, object]) -> dict[str, object]:
    head = {"id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 1, "model": "bench"}
    return {**head, "choices": [choice]}


def _head(headers: dict[str, str], body: bytes) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{lines}content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _data(fields: dict[str, object]) -> bytes:
    return _framed(b"data: %b\n\n" % compact(fields))


def _event(fields: dict[str, object]) -> bytes:
    return _framed(b"event: %b\ndata: %b\n\n" % (str(fields["type"]).encode(), compact(fields)))


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
