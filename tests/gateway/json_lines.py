"""A protocol of this test suite: `{"say": …}` in lines of JSON. It is all that a gateway needs to capture it."""

import json
from typing import Any

from claw_r1.gateway.call_protocol import CallRequest, Choice, EngineReply, ReplyStream
from claw_r1.gateway.errors import GatewayError, InvalidRequest
from claw_r1.gateway.upstream.http_upstream import UpstreamReply
from claw_r1.schemas.arrays import pack_floats, pack_ids
from claw_r1.schemas.events import Sampling, Usage

Line = dict[str, Any]
SAMPLING = Sampling(temperature=1.0, top_p=1.0, top_k=0)


class JsonLines:
    """A request `{"prompt", "stream"}`; a reply of lines `{"say", "id", "logprob"}`, the last one `{"end", "prompt_ids"}`."""

    name = "json-lines"
    path = "/v1/say"
    stream_type = "application/jsonl"

    def parse(self, body: bytes) -> CallRequest:
        fields = json.loads(body)
        if "prompt" not in fields:
            raise InvalidRequest("prompt is missing", param="prompt")
        forwarded = json.dumps({**fields, "ids": True}).encode()
        return CallRequest(body, forwarded, fields.get("model"), SAMPLING, bool(fields.get("stream")))

    def parse_reply(self, reply: UpstreamReply) -> EngineReply:
        return reply_of(reply.body, ended=True)

    def open_stream(self) -> ReplyStream:
        return LineStream()

    def error(self, error: GatewayError) -> bytes:
        return json.dumps({"oops": error.message}).encode()

    def error_message(self, body: bytes) -> str | None:
        message = json.loads(body).get("oops")
        return message if isinstance(message, str) else None


class LineStream:
    """Lines on their way through, as they are; the one with the end is held back. A line comes in one piece."""

    def __init__(self) -> None:
        self.over = False
        self.first_token_us: int | None = None
        self.held = b""
        self._passed = b""

    def feed(self, piece: bytes) -> bytes:
        self.over = b'"end"' in piece
        if self.over:
            self.held = piece
            return b""
        self._passed += piece
        return piece

    @property
    def whole(self) -> bytes:
        return self._passed + self.held

    @property
    def behind(self) -> bool:
        return False

    def add_up(self) -> None:
        """Its streams are short."""

    def reply(self, *, interrupted: bool) -> EngineReply:
        return reply_of(self.whole, ended=self.over and not interrupted)

    def error(self, error: GatewayError) -> bytes:
        return json.dumps({"oops": error.message}).encode() + b"\n"


def reply_of(body: bytes, *, ended: bool) -> EngineReply:
    """What lines add up to."""
    lines: list[Line] = [json.loads(line) for line in body.splitlines()]
    tokens, last = [line for line in lines if "say" in line], lines[-1]
    choice = Choice(
        index=0,
        response_ids=pack_ids([token["id"] for token in tokens]),
        response_logprobs=pack_floats([token["logprob"] for token in tokens]),
        spans=(),
        finish_reason=last.get("end"),
        missing=("spans",) if ended else ("spans", "stream_end"),
        aborted=not ended,
        body=body,
    )
    prompt_ids = pack_ids(last.get("prompt_ids", []))
    return EngineReply(body, prompt_ids, (choice,), Usage(prompt_tokens=0, completion_tokens=len(tokens)), ended)
