"""The signs of the caller in the headers of a model call.

Invariant: a header of ours that makes no sense is refused; one that other programs may send for their own reasons is
then ignored. Never read: `x-client-request-id` (of a request, or of a thread, as the client likes) and `traceparent`
(of a turn).
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import orjson

from claw_r1.gateway.callers.caller_fields import SessionName, session_name
from claw_r1.gateway.errors import InvalidRequest
from claw_r1.gateway.paths import quoted_id
from claw_r1.schemas.http import GROUP_HEADER, KIND_HEADER, PARENT_HEADER, TRAJECTORY_HEADER, CallKind

CLIENT_CHARACTERS_MAX = 64
TURN_METADATA = "x-codex-turn-metadata"
SUBAGENT = "x-openai-subagent"
CLAUDE_SESSION, CLAUDE_AGENT = "x-claude-code-session-id", "x-claude-code-agent-id"
SESSIONS = ("x-session-id", "x-session-affinity")
PARENTS = ("x-codex-parent-thread-id", "x-parent-session-id")
KINDS = (CallKind.MAIN, CallKind.SIDE, CallKind.SUBAGENT)
IDS = (TRAJECTORY_HEADER, GROUP_HEADER, PARENT_HEADER)
THEIRS = (
    "thread-id",
    CLAUDE_SESSION,
    CLAUDE_AGENT,
    *SESSIONS,
    *PARENTS,
    "x-turn-type",
    TURN_METADATA,
    SUBAGENT,
    "user-agent",
)
READ = {name.encode(): name for name in (*IDS, KIND_HEADER, *THEIRS)}


class CallerSigns(NamedTuple):
    """The caller by the headers."""

    trajectory: str | None = None
    group: str | None = None
    parent: str | None = None
    """A trajectory's id."""
    kind: str | None = None
    session: SessionName | None = None
    parent_session: tuple[str, ...] | None = None
    """The parts of its name, as those of `session`."""
    client: str | None = None


def signs(headers: Iterable[tuple[bytes, bytes]]) -> CallerSigns:
    """Read the headers of a call. Raises InvalidRequest for one of ours that is no id, or no kind."""
    raw = {READ[name]: value for name, value in headers if name in READ and value}
    client = _client(_text(raw.pop("user-agent", b"")))
    if not raw:  # nearly always
        return CallerSigns(client=client)
    # Percent-encoded, as in the reply's headers: what a reply says can be sent back.
    ids = {name: quoted_id(raw[name], name) for name in IDS if name in raw}
    values = {name: _text(value) for name, value in raw.items()}
    session, parent_session = _session(values), _parent_session(values)
    if session is not None and session.parts == parent_session:
        parent_session = None
    parent = ids.get(PARENT_HEADER)
    return CallerSigns(
        trajectory=ids.get(TRAJECTORY_HEADER),
        group=ids.get(GROUP_HEADER),
        parent=parent,
        kind=_kind(values, has_parent=bool(parent or parent_session)),
        session=session,
        parent_session=parent_session,
        client=client,
    )


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _session(values: Mapping[str, str]) -> SessionName | None:
    if thread := session_name(values.get("thread-id")):
        return SessionName("thread-id", (thread,))
    if claude := session_name(values.get(CLAUDE_SESSION)):
        agent = session_name(values.get(CLAUDE_AGENT))
        return SessionName(CLAUDE_SESSION, (claude, agent) if agent else (claude,))
    return next((SessionName(name, (value,)) for name in SESSIONS if (value := session_name(values.get(name)))), None)


def _parent_session(values: Mapping[str, str]) -> tuple[str, ...] | None:
    names = (*PARENTS, CLAUDE_SESSION) if session_name(values.get(CLAUDE_AGENT)) else PARENTS
    return next(((value,) for name in names if (value := session_name(values.get(name)))), None)


def _kind(values: Mapping[str, str], *, has_parent: bool) -> str | None:
    """Returns the kind of call that the client names. A sub-agent's turn is a turn, too: only then does `turn` mean the
    main one."""
    if KIND_HEADER in values:
        if values[KIND_HEADER] not in KINDS:
            raise InvalidRequest(f"header {KIND_HEADER} must be one of {', '.join(KINDS)}", param=KIND_HEADER)
        return values[KIND_HEADER]
    if values.get("x-turn-type") in (CallKind.MAIN, CallKind.SIDE):
        return values["x-turn-type"]
    request_kind = _request_kind(values.get(TURN_METADATA, ""))
    if request_kind == "compaction":
        return CallKind.SIDE
    if SUBAGENT in values or has_parent:
        return CallKind.SUBAGENT
    return CallKind.MAIN if request_kind == "turn" else None


def _request_kind(metadata: str) -> object:
    try:
        fields = orjson.loads(metadata) if metadata else None
    except orjson.JSONDecodeError:
        return None
    return fields.get("request_kind") if isinstance(fields, dict) else None


def _client(user_agent: str) -> str | None:
    first = user_agent.split(maxsplit=1)[:1]
    return first[0][:CLIENT_CHARACTERS_MAX] if first and first[0].isprintable() else None
