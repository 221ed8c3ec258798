"""The search for the caller of a model call. The first that is there names the trajectory: path, our headers, scope and
session, scope and continuation, none (docs/callers.md has the table).

Invariant: sessions count within their scope, and the ids made of them are one to one: no two sessions share a trajectory.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from claw_r1.gateway.callers.caller_fields import Hints, SessionName
from claw_r1.gateway.callers.caller_headers import CallerSigns
from claw_r1.gateway.callers.continuation import Continuations
from claw_r1.gateway.callers.scopes import derived_id, own_id, require_own, scope_of
from claw_r1.gateway.errors import InvalidRequest
from claw_r1.gateway.paths import Identity, Route, fresh_lane
from claw_r1.schemas.api_keys import ApiKey
from claw_r1.schemas.envelopes import decision_id, new_id
from claw_r1.schemas.http import GROUP_HEADER, PARENT_HEADER, TRAJECTORY_HEADER, CallKind

WEAK_SOURCE = "user"
"""Names a person, maybe: it makes no scope of a path that named a trajectory before it."""


class Caller(NamedTuple):
    """The caller of a model call, and its purpose."""

    identity: Identity
    source: str
    """In the words of `CallCaptured.identity_source`."""
    client: str | None = None
    parent: str | None = None
    """The trajectory that started this one, if that is another one."""
    kind: str | None = None
    """The kind that the client names; None: the pool tells from all calls of the trajectory
    (`datapool/fold/step.py`)."""
    has_tools: bool = False
    on_reply: Callable[[Sequence[bytes]], None] | None = None
    """To be told the bodies of its reply, where calls are joined by them."""
    idle_s: float | None = None
    """A silence after which the trajectory is complete; None: somebody completes it."""


class RetryKey(NamedTuple):
    """By what a request is known when it is sent again."""

    digest: str
    """The digest of its protocol and body."""
    idempotency_key: str | None = None


class Callers:
    """The callers of one process. awaits: whether a trajectory never got its reply to a body of this digest."""

    def __init__(self, awaits: Callable[[Identity, str], bool]) -> None:
        self._awaits, self._continuations = awaits, Continuations()

    def caller(
        self, route: Route | None, key: ApiKey | None, signs: CallerSigns, hints: Hints, retry: RetryKey
    ) -> Caller:
        """Finds the caller of a call with this body. Raises InvalidRequest for two names that contradict each other,
        Forbidden for one that the key does not own."""
        path, lone = (route.identity, route.lone) if route else (None, False)
        if path is not None:
            _agree(path, signs, lone=lone)
        session, on_reply = signs.session or hints.session, None
        is_scope = lone and _makes_scope(session, signs)
        scope = scope_of(key, path.trajectory_id if path is not None and is_scope else None)
        _require_own(key, None if is_scope else path, signs)
        if path is not None and not is_scope:
            identity, source = path._replace(group_id=signs.group or path.group_id), "path"
        elif signs.trajectory:
            identity, source = Identity(signs.group or signs.trajectory, signs.trajectory), "headers"
        else:
            lost = partial(self._lost, retry.digest, signs.group)
            named = retry.idempotency_key
            if named is not None and key is None:  # everybody's names meet here: programs that count theirs share none
                named = f"{named}/{retry.digest}"
            who, source, on_reply = self._derived(scope, key, session, hints, named, lost)
            identity = _in_group(who, signs.group)
        derived = source not in ("path", "headers")
        parent = signs.parent
        if parent is None and derived and signs.parent_session is not None:
            parent = derived_id(scope, signs.parent_session)
        return Caller(
            identity,
            source,
            client=signs.client,
            parent=parent,
            kind=signs.kind or (CallKind.SIDE if hints.is_side else None),
            has_tools=hints.has_tools,
            on_reply=on_reply,
            idle_s=key.idle_s if key is not None and derived else None,
        )

    def _derived(
        self,
        scope: str,
        key: ApiKey | None,
        session: SessionName | None,
        hints: Hints,
        idempotency_key: str | None,
        awaits: Callable[[Identity], bool],
    ) -> tuple[Identity, str, Callable[[Sequence[bytes]], None] | None]:
        if session is not None:
            trajectory_id = derived_id(scope, session.parts)
            return Identity(trajectory_id, trajectory_id), f"session:{session.source}", None
        has_scope = key is not None and key.scope
        fresh = partial(_fresh, scope, idempotency_key)
        joined = self._continuations.trajectory(scope, hints, awaits, fresh) if has_scope else None
        if joined is not None:
            return joined[0], "lineage", partial(self._continuations.note_reply, scope, *joined)
        return fresh_lane(partial(own_id, key), idempotency_key and _keyed(scope, idempotency_key)), "none", None

    def _lost(self, digest: str, group: str | None, who: Identity) -> bool:
        return self._awaits(_in_group(who, group), digest)


def _require_own(key: ApiKey | None, path: Identity | None, signs: CallerSigns) -> None:
    """path: the trajectory that it names. Sessions are within the key's scope as they are made."""
    require_own(key, **{GROUP_HEADER: signs.group, TRAJECTORY_HEADER: signs.trajectory, PARENT_HEADER: signs.parent})
    if path is not None:
        require_own(key, trajectory_id=path.trajectory_id, group_id=path.group_id)


def _fresh(scope: str, idempotency_key: str | None) -> Identity:
    trajectory_id = derived_id(scope, (new_id() if idempotency_key is None else _keyed(scope, idempotency_key),))
    return Identity(trajectory_id, trajectory_id)


def _keyed(scope: str, idempotency_key: str) -> str:
    """Sent again under its key a request finds the trajectory that it began, in whichever process."""
    return decision_id("lane", scope, idempotency_key)


def _in_group(who: Identity, group: str | None) -> Identity:
    return who._replace(group_id=group) if group else who


def _makes_scope(session: SessionName | None, signs: CallerSigns) -> bool:
    return session is not None and session.source != WEAK_SOURCE and signs.trajectory is None


def _agree(path: Identity, signs: CallerSigns, *, lone: bool) -> None:
    pairs = [(TRAJECTORY_HEADER, path.trajectory_id, signs.trajectory)]
    if not lone:
        pairs.append((GROUP_HEADER, path.group_id, signs.group))
    for header, of_path, of_header in pairs:
        if of_header is not None and of_header != of_path:
            raise InvalidRequest(f"the path says {of_path!r}, the header {header} says {of_header!r}", param=header)
