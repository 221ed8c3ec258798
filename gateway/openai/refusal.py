"""A 4xx of an engine, in OpenAI's shape whatever the engine wrote; and the one door for what engines say into events.

Invariant: what an engine was told to authorize a call is in no event, however the engine repeats it.
"""

import re
from collections.abc import Sequence
from typing import Any

import orjson

from gateway.openai.reply import dumps, loads
from gateway.upstream.pool import UpstreamReply

MESSAGE_CHARACTERS_MAX = 1000
BLANK = "[credential]"
ESCAPED = re.compile(rb"\\(?:u00([0-9a-fA-F]{2})|\\)")
"""A character of JSON that is written by its number, or a backslash."""


def refusal(reply: UpstreamReply, secrets: Sequence[str] = ()) -> tuple[int, bytes, str]:
    """Status, body for the client, and message for the event. A body that has OpenAI's shape goes through unchanged.

    secrets: what the engine was told and the event must not hold; some providers repeat a key that they refuse.
    """
    error = _error(reply.body)
    if error is not None:
        said = error.get("message")
        return reply.status, reply.body, blanked(said, secrets) if isinstance(said, str) else ""
    message = (
        blanked(reply.body.decode(errors="replace"), secrets)[:MESSAGE_CHARACTERS_MAX]
        or f"the engine answers {reply.status}"
    )
    content = {"message": message, "type": "upstream_error", "param": None, "code": "refused"}
    return reply.status, orjson.dumps({"error": content}), message


def blanked(text: str, secrets: Sequence[str]) -> str:
    """The text without the secrets."""
    for secret in secrets:
        text = text.replace(secret, BLANK).replace(secret.replace("/", "\\/"), BLANK)
    return text


def blanked_json(body: bytes, secrets: Sequence[str]) -> bytes:
    """JSON without the secrets, whatever way its strings write them; as it is where it holds none."""
    if not _may_hold(body, secrets):
        return body
    try:
        fields = {"": loads(body)}
        return dumps(fields)[4:-1] if _blank(fields, secrets) else body
    except (ValueError, RecursionError):
        return blanked(body.decode(errors="replace"), secrets).encode()


def _may_hold(body: bytes, secrets: Sequence[str]) -> bool:
    """Reading a long reply and going through it keeps the loop from others, so most are only searched, backslashes aside."""
    said = ESCAPED.sub(_unescaped, body).replace(b"\\", b"") if secrets and b"\\" in body else body
    return any(secret.replace("\\", "").encode() in said for secret in secrets)


def _unescaped(escape: re.Match[bytes]) -> bytes:
    return chr(int(escape[1], 16)).encode() if escape[1] else b""


def _blank(fields: dict[str, Any], secrets: Sequence[str]) -> bool:
    """Take the secrets out of names and texts, at any depth. Returns whether there were any."""
    found = False
    level: list[Any] = [fields]  # objects and lists
    while level:
        one = level.pop()
        for name, value in list(one.items() if isinstance(one, dict) else enumerate(one)):
            clean = blanked(value, secrets) if isinstance(value, str) else value
            if clean is not value and clean != value:
                one[name], found = clean, True
            if isinstance(name, str) and blanked(name, secrets) != name:
                one[blanked(name, secrets)], found = one.pop(name), True
            if isinstance(value, (dict, list)):
                level.append(value)
    return found


def _error(body: bytes) -> dict[str, Any] | None:  # parsed JSON
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    error = fields.get("error") if isinstance(fields, dict) else None
    return error if isinstance(error, dict) else None
