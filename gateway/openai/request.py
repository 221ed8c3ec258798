"""A request of OpenAI's API: parsed once, forwarded as the client wrote it plus what capture needs.

Invariant: the bytes that the engine gets parse to the client's object with `logprobs` and `return_token_ids` set, and
nothing else changed; where possible they *are* the client's bytes with these two fields spliced in, and never are
numbers written anew by a parser that rounds them.
"""

from typing import Any

import orjson

from claw_r1.gateway.call_protocol import CallRequest
from claw_r1.gateway.callers.hints import hints
from claw_r1.gateway.errors import InvalidRequest
from claw_r1.gateway.foreign_json import rewritten
from claw_r1.gateway.openai.sampling import effective
from claw_r1.schemas.events import Sampling

LOGPROBS, TOKEN_IDS = "logprobs", "return_token_ids"
"""The fields by which an engine is asked for what capture needs."""
SPACE = b" \t\r\n"
TEXT_PARTS = ("text", "input_text", "output_text", "refusal", "thinking")
"""Parts of a message's content that a tokenizer alone makes ids of."""
MULTIMODAL = "multimodal"


def parse_chat(body: bytes) -> CallRequest:
    """Parse the body of a chat request. Raises InvalidRequest with the field at fault."""
    fields = json_object(body)
    messages = fields.get("messages")
    if not isinstance(messages, list):
        raise InvalidRequest("messages must be a list", param="messages")
    added: dict[str, int] = {name: True for name in (LOGPROBS, TOKEN_IDS) if not fields.get(name)}
    request = call_request(body, fields, added, effective(fields))
    return request._replace(missing=(MULTIMODAL,)) if any(map(_has_media, messages)) else request


def call_request(body: bytes, fields: dict[str, Any], added: dict[str, int], sampling: Sampling) -> CallRequest:
    """The request of these fields, with those that only capture asks for `added`. Raises InvalidRequest."""
    model = fields.get("model")
    if not (model is None or isinstance(model, str)):
        raise InvalidRequest("model must be a string", param="model")
    return CallRequest(
        body=body,
        forwarded=_with_fields(body, fields, added),
        model=model or None,
        sampling=sampling,
        stream=bool(fields.get("stream")),
        added=frozenset(added),
        hints=hints(fields),
    )


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


def _with_fields(body: bytes, fields: dict[str, Any], added: dict[str, int]) -> bytes:
    if not added:
        return body
    if any(name in fields for name in added):  # written, but as false or null: a second mention would be ambiguous
        return rewritten(body, lambda fields: fields.update(added))
    members = orjson.dumps(added)[1:-1]
    front = body.rstrip(SPACE)[:-1]
    return b"%s%s%s}" % (front, b"," if fields else b"", members)
