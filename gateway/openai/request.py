"""A chat request: parsed once, forwarded as the client wrote it plus what capture needs.

Invariant: the bytes that the engine gets parse to the client's object with `logprobs` and `return_token_ids` set, and
nothing else changed; where possible they *are* the client's bytes with these two fields spliced in, and never are
numbers written anew by a parser that rounds them.
"""

import json
from typing import Any

import orjson

from gateway.call_protocol import CallRequest
from gateway.errors import InvalidRequest
from gateway.openai.sampling import effective

LOGPROBS, TOKEN_IDS = "logprobs", "return_token_ids"
"""The fields by which an engine is asked for what capture needs."""
SPACE = b" \t\r\n"


def parse_chat(body: bytes) -> CallRequest:
    """Parse a request body. Raises InvalidRequest with the field at fault."""
    fields = _json_object(body)
    if not isinstance(fields.get("messages"), list):
        raise InvalidRequest("messages must be a list", param="messages")
    model = fields.get("model")
    if not (model is None or isinstance(model, str)):
        raise InvalidRequest("model must be a string", param="model")
    added = [name for name in (LOGPROBS, TOKEN_IDS) if not fields.get(name)]
    return CallRequest(
        body=body,
        forwarded=_with_fields(body, fields, added),
        model=model or None,
        sampling=effective(fields),
        stream=bool(fields.get("stream")),
        added=frozenset(added),
    )


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as broken:
        raise InvalidRequest(f"the body is not valid JSON: {broken}") from broken
    if not isinstance(fields, dict):
        raise InvalidRequest("the body must be a JSON object")
    return fields


def _with_fields(body: bytes, fields: dict[str, Any], added: list[str]) -> bytes:
    if not added:
        return body
    if any(name in fields for name in added):  # written, but as false or null: a second mention would be ambiguous
        return _written_anew(body, added)
    members = b",".join(b'"%s":true' % name.encode() for name in added)
    front = body.rstrip(SPACE)[:-1]
    return b"%s%s%s}" % (front, b"," if fields else b"", members)


def _written_anew(body: bytes, added: list[str]) -> bytes:
    # Not orjson, which makes floats of integers beyond 64 bits, and writes less deeply nested values than it reads.
    try:
        return json.dumps({**json.loads(body), **dict.fromkeys(added, True)}).encode()
    except (RecursionError, ValueError) as broken:
        raise InvalidRequest("the body is nested too deeply, or holds a number of too many digits") from broken
