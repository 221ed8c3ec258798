"""OpenAI's chat completions as vLLM serves them: what the gateway must know of a protocol."""

import re

from claw_r1.gateway.call_protocol import CallRequest, EngineReply, ReplyStream
from claw_r1.gateway.errors import GatewayError, error_body
from claw_r1.gateway.foreign_json import count, dumps, object_of
from claw_r1.gateway.openai.chunks import StreamedCompletion
from claw_r1.gateway.openai.reply import encodable, parse_reply, with_choices, without_added, written_anew
from claw_r1.gateway.openai.request import parse_chat
from claw_r1.gateway.openai.stream_filter import FIRST_TOKEN, StreamFilter
from claw_r1.gateway.tokens.protocol import PackedProtocol
from claw_r1.gateway.tokens.reply import Outline
from claw_r1.gateway.tokens.sse import data_of
from claw_r1.gateway.upstream.pool import UpstreamReply
from claw_r1.schemas.http import TOKENS_HEADER
from claw_r1.schemas.json_values import Json


def error_message(body: bytes) -> str | None:
    """Returns the message of OpenAI's error object, under `CallProtocol.error_message`."""
    error = (object_of(body) or {}).get("error")
    if not isinstance(error, dict):
        return None
    message = error.get("message")
    return message if isinstance(message, str) else ""


class OpenAIProtocol(PackedProtocol):
    """The common part of chat and text completions: choices, and streams that end in `[DONE]`. Its errors are the
    gateway's own."""

    last = b"[DONE]"
    first_token: re.Pattern[bytes] = FIRST_TOKEN
    kind: str
    """The kind of a whole reply's `object`."""
    error = staticmethod(error_body)
    error_message = staticmethod(error_message)

    def outlines(self, fields: dict[str, Json]) -> list[Outline]:
        answers = with_choices(fields)["choices"]
        return [
            Outline(
                count(answer.get("index"), position),
                encodable(answer.get("finish_reason")),
                dumps({**fields, "choices": [answer]}) if len(answers) > 1 else b"",
            )
            for position, answer in enumerate(answers)
        ]

    def assembly(self) -> StreamedCompletion:
        return StreamedCompletion(self.kind)

    def is_last(self, event: bytes) -> bool:
        return data_of(event).strip() == self.last

    def error_event(self, error: GatewayError) -> bytes:
        """The event that OpenAI's SDKs raise for."""
        return b"data: %b\n\n" % error_body(error)


class ChatCompletions(OpenAIProtocol):
    """`POST /v1/chat/completions`, a `CallProtocol`. An engine that is not known to pack tokens is asked for them in the reply,
    too, and believed where it packs them all the same."""

    name = "chat"
    path = "/v1/chat/completions"
    kind = "chat.completion"
    parse = staticmethod(parse_chat)

    def parse_reply(self, reply: UpstreamReply, request: CallRequest) -> EngineReply:
        """Parses under `CallProtocol.parse_reply`."""
        packed = request.packed or TOKENS_HEADER in reply.headers
        return super().parse_reply(reply, request) if packed else parse_reply(reply, request)

    def own_bytes(self, body: bytes, request: CallRequest) -> bytes:
        """Returns bytes under `PackedProtocol.own_bytes`."""
        if not request.added:
            return body
        own = without_added(body, request)
        return own if own is not None else written_anew(body, request)

    def open_stream(self, request: CallRequest) -> ReplyStream:
        """Opens a stream under `CallProtocol.open_stream`."""
        return super().open_stream(request) if request.packed else StreamFilter(self, request)
