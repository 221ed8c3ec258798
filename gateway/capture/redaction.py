"""Credentials are removed from engines' output before it becomes an event.

Invariant: credentials sent to an engine appear in no event, however the engine repeats them.
"""

import re
from collections.abc import Sequence
from typing import Any

from claw_r1.gateway.foreign_json import dumps, loads

BLANK = "[credential]"
ESCAPED = re.compile(rb"\\(?:u00([0-9a-fA-F]{2})|\\)")
"""A character of JSON that is written by its number, or a backslash."""


def redacted(text: str, secrets: Sequence[str]) -> str:
    """The text without the secrets."""
    for secret in secrets:
        text = text.replace(secret, BLANK).replace(secret.replace("/", "\\/"), BLANK)
    return text


def redacted_message(text: str, secrets: Sequence[str]) -> str:
    """A text that may itself quote JSON; nothing is left of one that holds a secret in JSON's escapes."""
    clean = redacted(text, secrets)
    return BLANK if _may_hold(clean.encode(errors="replace"), secrets) else clean


def redacted_body(body: bytes, secrets: Sequence[str]) -> bytes:
    """A body without the secrets, in whatever way JSON strings write them; the same object where it holds none."""
    if not _may_hold(body, secrets):
        return body
    try:
        fields = {"": loads(body)}
        return dumps(fields)[4:-1] if _redact(fields, secrets) else body
    except (ValueError, RecursionError):
        return redacted(body.decode(errors="replace"), secrets).encode()


def _may_hold(body: bytes, secrets: Sequence[str]) -> bool:
    """Reading a long reply and going through it keeps the loop from others, so most are only searched, backslashes aside."""
    plain = ESCAPED.sub(_unescaped, body).replace(b"\\", b"") if secrets and b"\\" in body else body
    return any(secret.replace("\\", "").encode() in plain for secret in secrets)


def _unescaped(escape: re.Match[bytes]) -> bytes:
    return chr(int(escape[1], 16)).encode() if escape[1] else b""


def _redact(fields: dict[str, Any], secrets: Sequence[str]) -> bool:
    """Take the secrets out of names and texts, at any depth. Returns whether there were any."""
    changed = False
    level: list[Any] = [fields]  # objects and lists
    while level:
        container = level.pop()
        for name, value in list(container.items() if isinstance(container, dict) else enumerate(container)):
            clean = redacted(value, secrets) if isinstance(value, str) else value
            if clean is not value and clean != value:
                container[name], changed = clean, True
            if isinstance(name, str) and redacted(name, secrets) != name:
                container[redacted(name, secrets)], changed = container.pop(name), True
            if isinstance(value, (dict, list)):
                level.append(value)
    return changed
