"""The hints of a request's fields about the caller. Protocols read it from the object that they parsed: nothing is
parsed twice."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

ID_CHARACTERS_MAX = 512
COUNTER = re.compile(r":\d+\Z")
LEGACY_USER_ID = re.compile(r"_session_([0-9A-Fa-f-]{36})\Z")
USER_ID_CHARACTERS_MAX = 4096


class SessionName(NamedTuple):
    """A session as its client names it: the parts of its name, and the header or field that holds it."""

    source: str
    parts: tuple[str, ...]


class Hints(NamedTuple):
    """The content of a request that tells about its caller."""

    session: SessionName | None = None
    has_tools: bool = False
    opening: tuple[object, ...] = ()
    """The text before the messages: the system's text, instructions."""
    messages: Sequence[object] = ()
    """The parsed messages."""
    is_side: bool = False
    """Its model was asked for by an alias of side calls."""
    previous: str | None = None
    """The reply that it goes on from, without repeating what was before."""


def hints(fields: Mapping[str, Any]) -> Hints:
    """The hints in a client's fields, hence Any: of chat, completions, responses or messages. What makes no sense says nothing."""
    messages = fields.get("messages", fields.get("input"))
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    return Hints(
        session=_session(fields),
        has_tools=bool(fields.get("tools") or fields.get("functions")),
        opening=(fields.get("system"), fields.get("instructions")),
        messages=messages if isinstance(messages, list) else (),
        previous=session_name(fields.get("previous_response_id")),
    )


def session_name(value: object) -> str | None:
    """The value where it can name a session: 1 to 512 printable characters."""
    is_name = isinstance(value, str) and 1 <= len(value) <= ID_CHARACTERS_MAX and value.isprintable()
    return value if is_name and isinstance(value, str) else None


def _session(fields: Mapping[str, Any]) -> SessionName | None:
    metadata = fields.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    cache_key = fields.get("prompt_cache_key")
    named = (
        ("prompt_cache_key", COUNTER.sub("", cache_key) if isinstance(cache_key, str) else None),
        ("metadata.user_id", _of_user_id(metadata.get("user_id"))),
        ("metadata.session_id", metadata.get("session_id")),
        ("user", fields.get("user")),
    )
    return next((SessionName(source, (name,)) for source, value in named if (name := session_name(value))), None)


def _of_user_id(user_id: object) -> object:
    """The session in a `metadata.user_id`: a member of an object written as text, or its end after `_session_`."""
    if not isinstance(user_id, str) or len(user_id) > USER_ID_CHARACTERS_MAX:
        return None
    if user_id.startswith("{"):
        try:
            return orjson.loads(user_id).get("session_id")
        except orjson.JSONDecodeError:
            return None
    match = LEGACY_USER_ID.search(user_id)
    return match and match[1]
