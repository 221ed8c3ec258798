"""OpenAI's chat completions as vLLM serves them: what the gateway must know of a protocol."""

import orjson

from gateway.errors import error_body
from gateway.openai.reply import parse_reply
from gateway.openai.request import parse_chat
from gateway.openai.stream_filter import StreamFilter


def error_message(body: bytes) -> str | None:
    """As `CallProtocol.error_message`, of OpenAI's error object."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    error = fields.get("error") if isinstance(fields, dict) else None
    if not isinstance(error, dict):
        return None
    message = error.get("message")
    return message if isinstance(message, str) else ""


class ChatCompletions:
    """`POST /v1/chat/completions`, a `CallProtocol`. Its error object is the gateway's own."""

    name = "chat"
    path = "/v1/chat/completions"
    stream_type = "text/event-stream"
    parse = staticmethod(parse_chat)
    parse_reply = staticmethod(parse_reply)
    open_stream = staticmethod(StreamFilter)
    error = staticmethod(error_body)
    error_message = staticmethod(error_message)
