"""A request of OpenAI's API: parsed once, forwarded as the client wrote it."""

import math
from typing import Any, TypeGuard

import orjson

from claw_r1.gateway.call_protocol import CallRequest
from claw_r1.gateway.callers.caller_fields import hints
from claw_r1.gateway.errors import InvalidRequest
from claw_r1.schemas.events import Sampling

TEXT_PARTS = ("text", "input_text", "output_text", "refusal", "thinking")
"""Parts of a message's content that a tokenizer alone makes ids of."""
MULTIMODAL = "multimodal"
LIMITS = ("max_completion_tokens", "max_output_tokens", "max_tokens")
"""The fields of all protocols that limit a response; where there are several, the engine
takes the first of them."""


def parse_chat(body: bytes) -> CallRequest:
    """Parse the body of a chat request. Raises InvalidRequest with the field at fault."""
    fields = json_object(body)
    messages = fields.get("messages")
    if not isinstance(messages, list):
        raise InvalidRequest("messages must be a list", param="messages")
    request = call_request(body, fields)
    return request._replace(missing=(MULTIMODAL,)) if any(map(_has_media, messages)) else request


def call_request(body: bytes, fields: dict[str, Any]) -> CallRequest:  # Any: the client's
    """The request of these fields, whatever the protocol. Raises InvalidRequest."""
    model = fields.get("model")
    if not (model is None or isinstance(model, str)):
        raise InvalidRequest("model must be a string", param="model")
    return CallRequest(
        body=body,
        forwarded=body,
        model=model or None,
        sampling=_asked(fields),
        stream=bool(fields.get("stream")),
        hints=hints(fields),
    )


def _asked(fields: dict[str, Any]) -> Sampling:
    """The temperature and the limit that the client wrote; values that no engine takes are left for it to refuse."""
    temperature, limits = fields.get("temperature"), [fields.get(name) for name in LIMITS]
    return Sampling(
        temperature=float(temperature) if _is_number(temperature) else 1.0,
        top_p=1.0,
        top_k=0,
        max_tokens=next((limit for limit in limits if type(limit) is int and 0 <= limit < 1 << 31), None),
    )


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _has_media(message: object) -> bool:
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):  # nearly always
        return False
    return any(isinstance(part, dict) and part.get("type") not in TEXT_PARTS for part in content)


def json_object(body: bytes) -> dict[str, Any]:
    """The client's fields, hence Any. Raises InvalidRequest for what is no JSON object."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as broken:
        raise InvalidRequest(f"the body is not valid JSON: {broken}") from broken
    if not isinstance(fields, dict):
        raise InvalidRequest("the body must be a JSON object")
    return fields
