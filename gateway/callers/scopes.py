"""The names that a key owns: a key with a scope, or with `idle_s`, may only name ids that begin with its scope.

Invariant: an owned id is the scope alone, or goes on with `/` or `:` behind it. Scopes are percent-encoded, so neither
character stands in one: `alice` owns `alice/s1` and `alice:x/s1`, and never `alice2/s1`. Ids that the gateway makes for such
a key (sessions, lanes, groups, trajectories) begin so, too. Keys that have neither may name everything.
"""

from collections.abc import Iterable
from hashlib import sha256
from urllib.parse import quote

from claw_r1.gateway.errors import Forbidden
from claw_r1.gateway.paths import LANE
from claw_r1.schemas.api_keys import ApiKey

READABLE_CHARACTERS_MAX = 256
HASHED_CHARACTERS = 64
"""The characters of a longer id that stay before its hash."""
SCOPE_CHARACTERS_MAX = 128
"""A longer one ends in its hash, so that every id within it is one that a path may name."""
BEHIND = ("/", ":")


def scope_of(key: ApiKey | None, path: str | None) -> str:
    """Within which a session's name counts. `:` and `=` are ours: they stand in no quoted text.

    >>> scope_of(None, None), scope_of(None, "team")
    ('local', 'team')
    """
    if key is None:
        return "local" if path is None else _quoted(path)
    own = _bounded(_quoted(key.scope) if key.scope else f"key={_quoted(key.label)}", SCOPE_CHARACTERS_MAX)
    return own if path is None else f"{own}:{_quoted(path)}"


def derived_id(scope: str, parts: tuple[str, ...]) -> str:
    """The trajectory of a session; a long one ends in its hash, behind the scope of its key.

    >>> derived_id("team", ("s 1", "agent/2"))
    'team/s%201/agent%2F2'
    """
    whole = "/".join((scope, *map(_quoted, parts)))
    return _bounded(whole, READABLE_CHARACTERS_MAX, 1 + len(scope.partition(":")[0]))


def owned_scope(key: ApiKey | None) -> str | None:
    """Returns the prefix of the names that this key may use; None: it may say any."""
    return scope_of(key, None) if key is not None and key.is_narrow else None


def silence_s(keys: Iterable[ApiKey], trajectory_id: str) -> float | None:
    """Returns the silence after which this trajectory is complete, where it is a session or a lane of one of the keys; None for
    what a path names, which is completed by whoever named it."""
    return next((key.idle_s for key in keys if key.idle_s is not None and _is_derived(key, trajectory_id)), None)


def _is_derived(key: ApiKey, trajectory_id: str) -> bool:
    is_made = "/" in trajectory_id or trajectory_id.startswith(own_id(key, LANE))
    return is_made and _is_within(scope_of(key, None), trajectory_id)


def own_id(key: ApiKey | None, new_id: str) -> str:
    """An id that is made up for this key, which owns it. It may stand in a path: a proxy may decode `:` and harm nothing, and `/`.

    >>> own_id(None, "lane-1"), own_id(ApiKey("agent", b"", scope="team"), "lane-1")
    ('lane-1', 'team:lane-1')
    """
    scope = owned_scope(key)
    return new_id if scope is None else f"{scope}:{new_id}"


def require_own(key: ApiKey | None, **names: str | None) -> None:
    """Raises Forbidden unless this key owns each of these names; None names nothing."""
    scope = owned_scope(key)
    if scope is None:
        return
    for param, name in names.items():
        if name is not None and not _is_within(scope, name):
            raise Forbidden(
                f"this key has the scope {scope!r}: it may name {scope + '/…'!r} and {scope + ':…'!r}, and {param} is {name!r}",
                param=param,
                code="not_owned",
            )


def _is_within(scope: str, name: str) -> bool:
    return name == scope or name.startswith(tuple(scope + each for each in BEHIND))


def _bounded(text: str, characters_max: int, kept: int = 0) -> str:
    """The text itself, or as much of it as is readable, at least `kept` characters, and its hash."""
    if len(text) <= characters_max:
        return text
    return f"{text[: max(HASHED_CHARACTERS, kept)]}…{sha256(text.encode()).hexdigest()}"


def _quoted(text: str) -> str:
    return quote(text, safe="@")
