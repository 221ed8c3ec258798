"""A chat request: parsed once, forwarded as the client wrote it plus what capture needs.

Invariant: the bytes that the engine gets parse to the client's object with `logprobs` and `return_token_ids` set, and
nothing else changed; where possible they *are* the client's bytes with these two fields spliced in, and never are
numbers written anew by a parser that rounds them.
"""

import json
from typing import Any, NamedTuple

import orjson

from gateway.errors import InvalidRequest
from gateway.openai.sampling import effective
from schemas.events import Sampling

CAPTURE_FIELDS = ("logprobs", "return_token_ids")
SPACE = b" \t\r\n"


class ChatRequest(NamedTuple):
    """What the gateway understood of a chat request. `body` is untouched, `forwarded` is for engines."""

    body: bytes
    forwarded: bytes
    model: str | None
    sampling: Sampling
    wants_logprobs: bool
    wants_token_ids: bool
    stream: bool = False


def nothing_added(request: ChatRequest) -> ChatRequest:
    """The request to a server that was asked for nothing but what the client asked for: its reply is the client's as it is."""
    return request._replace(wants_logprobs=True, wants_token_ids=True)


def parse_chat(body: bytes) -> ChatRequest:
    """Parse a request body. Raises InvalidRequest with the field at fault."""
    fields = _json_object(body)
    if not isinstance(fields.get("messages"), list):
        raise InvalidRequest("messages must be a list", param="messages")
    model = fields.get("model")
    if not (model is None or isinstance(model, str)):
        raise InvalidRequest("model must be a string", param="model")
    return ChatRequest(
        body=body,
        forwarded=_with_capture(body, fields),
        model=model or None,
        sampling=effective(fields),
        wants_logprobs=bool(fields.get("logprobs")),
        wants_token_ids=bool(fields.get("return_token_ids")),
        stream=bool(fields.get("stream")),
    )


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as broken:
        raise InvalidRequest(f"the body is not valid JSON: {broken}") from broken
    if not isinstance(fields, dict):
        raise InvalidRequest("the body must be a JSON object")
    return fields


def _with_capture(body: bytes, fields: dict[str, Any]) -> bytes:
    missing = [name for name in CAPTURE_FIELDS if not fields.get(name)]
    if not missing:
        return body
    if any(name in fields for name in missing):  # written, but as false or null: a second mention would be ambiguous
        return _written_anew(body, missing)
    added = b",".join(b'"%s":true' % name.encode() for name in missing)
    front = body.rstrip(SPACE)[:-1]
    return b"%s%s%s}" % (front, b"," if fields else b"", added)


def _written_anew(body: bytes, missing: list[str]) -> bytes:
    # Not orjson, which makes floats of integers beyond 64 bits, and writes less deeply nested values than it reads.
    try:
        return json.dumps({**json.loads(body), **dict.fromkeys(missing, True)}).encode()
    except (RecursionError, ValueError) as broken:
        raise InvalidRequest("the body is nested too deeply, or holds a number of too many digits") from broken
