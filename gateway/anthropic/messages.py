"""Anthropic's messages as vLLM serves them: what the gateway must know of a protocol.

Only an engine that packs tokens tells them exactly; from any other the calls are stored and not trainable.
"""

import re

from claw_r1.gateway.anthropic.content import StreamedMessage
from claw_r1.gateway.anthropic.errors import anthropic_error, error_message
from claw_r1.gateway.call_protocol import CallRequest
from claw_r1.gateway.errors import GatewayError, InvalidRequest, UpstreamBroken
from claw_r1.gateway.foreign_json import encodable, loads, objects
from claw_r1.gateway.openai.request import MULTIMODAL, call_request, json_object
from claw_r1.gateway.tokens.packed_protocol import PackedProtocol
from claw_r1.gateway.tokens.reply import Outline
from claw_r1.gateway.tokens.sse import data_of
from claw_r1.schemas.json_values import Json

FINISH_REASONS = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls"}
"""Anthropic's words, and those that the pool knows; any other word is kept."""
TEXT_BLOCKS = (
    *("text", "thinking", "redacted_thinking", "tool_use", "tool_result"),
    *("tool_reference", "tool_addition", "tool_removal"),
)
"""Blocks of a message's content, or of a tool's result, that a tokenizer alone makes ids of."""


class AnthropicMessages(PackedProtocol):
    """`POST /v1/messages`, a `CallProtocol`."""

    name = "messages"
    path = "/v1/messages"
    last = b"message_stop"
    first_token = re.compile(rb'"(?:text|thinking|partial_json|name)"\s*:\s*"[^"]')
    error = staticmethod(anthropic_error)
    error_message = staticmethod(error_message)

    def parse(self, body: bytes) -> CallRequest:
        """Parse the body of a messages request; the engine judges all else. Raises InvalidRequest with the field at fault."""
        fields = json_object(body)
        messages = fields.get("messages")
        if not isinstance(messages, list):
            raise InvalidRequest("messages must be a list", param="messages")
        request = call_request(body, fields)
        contents = [message.get("content") for message in messages if isinstance(message, dict)]
        return request._replace(missing=(MULTIMODAL,)) if any(map(_has_media, contents)) else request

    def outlines(self, fields: dict[str, Json]) -> list[Outline]:
        if not isinstance(fields.get("content"), list):
            raise UpstreamBroken("the engine's reply is not a message", code="upstream_bad_reply")
        reason = encodable(fields.get("stop_reason"))
        return [Outline(0, FINISH_REASONS.get(reason, reason) if reason else None, b"")]

    def assembly(self) -> StreamedMessage:
        return StreamedMessage()

    def is_last(self, event: bytes) -> bool:
        try:
            fields = loads(data_of(event))
        except ValueError:
            return False
        return isinstance(fields, dict) and fields.get("type") == "message_stop"

    def error_event(self, error: GatewayError) -> bytes:
        """The event that Anthropic's SDKs raise for."""
        return b"event: error\ndata: %b\n\n" % anthropic_error(error)


def _has_media(content: object) -> bool:
    blocks = objects(content)
    results = [block.get("content") for block in blocks if block.get("type") == "tool_result"]
    inner = [part for result in results for part in objects(result)]
    return any(block.get("type") not in TEXT_BLOCKS for block in (*blocks, *inner))
