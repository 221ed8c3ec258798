"""OpenAI's chat completions as vLLM serves them: the gateway's knowledge of a protocol.

Only an engine that packs tokens tells them exactly; from any other the calls are stored and not trainable.
"""

import re

from claw_r1.gateway.errors import GatewayError, UpstreamBroken, error_body
from claw_r1.gateway.foreign_json import count, dumps, encodable, object_of
from claw_r1.gateway.openai.chunks import StreamedCompletion
from claw_r1.gateway.openai.request import parse_chat
from claw_r1.gateway.tokens.packed_protocol import PackedProtocol
from claw_r1.gateway.tokens.reply import Outline
from claw_r1.gateway.tokens.sse import data_of
from claw_r1.schemas.json_values import Json


def error_message(body: bytes) -> str | None:
    """Returns the message of OpenAI's error object (`CallProtocol.error_message`)."""
    error = (object_of(body) or {}).get("error")
    if not isinstance(error, dict):
        return None
    message = error.get("message")
    return message if isinstance(message, str) else ""


class OpenAIProtocol(PackedProtocol):
    """The common part of chat and text completions: choices, and streams that end in `[DONE]`. Its errors are the
    gateway's own."""

    last = b"[DONE]"
    first_token = re.compile(
        rb'"token_ids"\s*:\s*\[\s*\d|"(?:text|content|reasoning|reasoning_content|refusal|arguments|name)"\s*:\s*"[^"]'
    )
    kind: str
    """The kind of a whole reply's `object`."""
    error = staticmethod(error_body)
    error_message = staticmethod(error_message)

    def outlines(self, fields: dict[str, Json]) -> list[Outline]:
        answers = fields.get("choices")
        if not (isinstance(answers, list) and answers and all(isinstance(answer, dict) for answer in answers)):
            raise UpstreamBroken("the engine's reply has no choices", code="upstream_bad_reply")
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

    def is_whole(self, outlines: list[Outline]) -> bool:
        """Returns whether each choice has its end: some providers leave `[DONE]` out."""
        return all(outline.finish_reason is not None for outline in outlines)

    def error_event(self, error: GatewayError) -> bytes:
        """The event that OpenAI's SDKs raise for."""
        return b"data: %b\n\n" % error_body(error)


class ChatCompletions(OpenAIProtocol):
    """`POST /v1/chat/completions`, a `CallProtocol`."""

    name = "chat"
    path = "/v1/chat/completions"
    kind = "chat.completion"
    parse = staticmethod(parse_chat)
