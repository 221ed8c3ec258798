"""A 4xx of an engine, in OpenAI's shape whatever the engine wrote."""

from collections.abc import Sequence
from typing import Any

import orjson

from gateway.upstream import UpstreamReply

MESSAGE_CHARACTERS_MAX = 1000
BLANK = "[credential]"


def refusal(reply: UpstreamReply, secrets: Sequence[str] = ()) -> tuple[int, bytes, str]:
    """Status, body for the client, and message for the event. A body that has OpenAI's shape goes through unchanged.

    secrets: what the engine was told and the event must not hold; some providers repeat a key that they refuse.
    """
    error = _error(reply.body)
    if error is not None:
        said = error.get("message")
        return reply.status, reply.body, _blanked(said, secrets) if isinstance(said, str) else ""
    message = (
        _blanked(reply.body.decode(errors="replace"), secrets)[:MESSAGE_CHARACTERS_MAX]
        or f"the engine answers {reply.status}"
    )
    content = {"message": message, "type": "upstream_error", "param": None, "code": "refused"}
    return reply.status, orjson.dumps({"error": content}), message


def _blanked(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, BLANK).replace(secret.replace("/", "\\/"), BLANK)
    return text


def _error(body: bytes) -> dict[str, Any] | None:  # parsed JSON
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    error = fields.get("error") if isinstance(fields, dict) else None
    return error if isinstance(error, dict) else None
