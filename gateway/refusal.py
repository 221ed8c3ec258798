"""A 4xx of an engine, in OpenAI's shape whatever the engine wrote."""

from typing import Any

import orjson

from gateway.upstream import UpstreamReply

MESSAGE_CHARACTERS_MAX = 1000


def refusal(reply: UpstreamReply) -> tuple[int, bytes, str]:
    """Status, body for the client, and message for the event. A body that has OpenAI's shape goes through unchanged."""
    error = _error(reply.body)
    if error is not None:
        said = error.get("message")
        return reply.status, reply.body, said if isinstance(said, str) else ""
    message = reply.body[:MESSAGE_CHARACTERS_MAX].decode(errors="replace") or f"the engine answers {reply.status}"
    content = {"message": message, "type": "upstream_error", "param": None, "code": "refused"}
    return reply.status, orjson.dumps({"error": content}), message


def _error(body: bytes) -> dict[str, Any] | None:  # parsed JSON
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    error = fields.get("error") if isinstance(fields, dict) else None
    return error if isinstance(error, dict) else None
