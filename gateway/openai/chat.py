"""OpenAI's chat completions as vLLM serves them: what the gateway must know of a protocol (`CallProtocol`)."""

import orjson

from gateway.call_protocol import CallRequest, EngineReply, ReplyStream
from gateway.errors import GatewayError, error_body
from gateway.openai.reply import parse_reply
from gateway.openai.request import parse_chat
from gateway.openai.stream_filter import StreamFilter
from gateway.upstream.pool import UpstreamReply
from schemas.http import VERSION_SPANS_HEADER


class ChatCompletions:
    """`POST /v1/chat/completions`."""

    name = "chat"
    path = "/v1/chat/completions"
    stream_type = "text/event-stream"

    def parse(self, body: bytes) -> CallRequest:
        """As `CallProtocol.parse`."""
        return parse_chat(body)

    def parse_reply(self, reply: UpstreamReply, request: CallRequest) -> EngineReply:
        """As `CallProtocol.parse_reply`."""
        return parse_reply(reply.body, reply.headers.get(VERSION_SPANS_HEADER), request)

    def open_stream(self, request: CallRequest, bytes_max: int) -> ReplyStream:
        """As `CallProtocol.open_stream`."""
        return StreamFilter(request, bytes_max)

    def error(self, error: GatewayError) -> bytes:
        """OpenAI's error object, which is the gateway's own, too."""
        return error_body(error)

    def error_message(self, body: bytes) -> str | None:
        """As `CallProtocol.error_message`."""
        try:
            fields = orjson.loads(body)
        except orjson.JSONDecodeError:
            return None
        error = fields.get("error") if isinstance(fields, dict) else None
        if not isinstance(error, dict):
            return None
        message = error.get("message")
        return message if isinstance(message, str) else ""
