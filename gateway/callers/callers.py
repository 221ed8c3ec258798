"""Who makes a model call. The first that is there names the trajectory: path, our headers, scope and session, scope and
lineage, none (docs/callers.md has the table).

Invariant: sessions count within their scope, and the ids made of them are one to one: no two sessions share a trajectory.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import quote

from gateway.callers.hints import Hints, SessionName
from gateway.callers.lineage import Lineage
from gateway.callers.signs import CallerSigns
from gateway.errors import InvalidRequest
from gateway.identity import Identity, Route, fresh_lane
from schemas.api_keys import ApiKey
from schemas.envelopes import new_id
from schemas.http import GROUP_HEADER, TRAJECTORY_HEADER, CallKind

READABLE_CHARACTERS_MAX = 256
TRAJECTORIES_MAX = 10_000
WEAK_SOURCE = "user"
"""Names a person, maybe: it makes no scope of a path that named a trajectory before it."""


@dataclass(slots=True)
class Toolbox:
    """What the calls of one trajectory share."""

    in_use: bool = False
    """Some of them had tools."""


class Caller(NamedTuple):
    """Who made a call, and what for."""

    identity: Identity
    source: str
    """In the words of `CallCaptured.identity_source`."""
    toolbox: Toolbox
    client: str | None = None
    parent: str | None = None
    """The trajectory that started this one, if that is another one."""
    stated_kind: str | None = None
    has_tools: bool = False
    replied: Callable[[Sequence[bytes]], None] | None = None
    """To be told the bodies of its reply, where calls are joined by them."""
    idle_s: float | None = None
    """A silence after which the trajectory is complete; None: somebody completes it."""

    @property
    def kind(self) -> str:
        """As the client says; else a call without the tools that others of its trajectory have is a side call. Told late,
        since a side call may be made beside the first one of its trajectory."""
        is_side = self.toolbox.in_use and not self.has_tools
        return self.stated_kind or (CallKind.SIDE if is_side else CallKind.MAIN)


class Callers:
    """The callers of one process. awaits: whether a trajectory never got its reply to a body of this digest."""

    def __init__(self, awaits: Callable[[Identity, str], bool]) -> None:
        self._awaits, self._lineage = awaits, Lineage()
        self._toolboxes: OrderedDict[Identity, Toolbox] = OrderedDict()

    def caller(self, route: Route | None, key: ApiKey | None, signs: CallerSigns, hints: Hints, digest: str) -> Caller:
        """Who makes a call with this body. Raises InvalidRequest for two names that contradict each other."""
        path, lone = (route.identity, route.lone) if route else (None, False)
        if path is not None:
            _agree(path, signs, lone=lone)
        session, replied = signs.session or hints.session, None
        is_scope = lone and _makes_scope(session, signs)
        scope = scope_of(key, path.trajectory_id if path is not None and is_scope else None)
        if path is not None and not is_scope:
            identity, source = path._replace(group_id=signs.group or path.group_id), "path"
        elif signs.trajectory:
            identity, source = Identity(signs.group or signs.trajectory, signs.trajectory), "headers"
        else:
            who, source, replied = self._derived(scope, key, session, hints, partial(self._lost, digest, signs.group))
            identity = _in_group(who, signs.group)
        derived = source not in ("path", "headers")
        parent = signs.parent
        if parent is None and derived and signs.parent_session is not None:
            parent = derived_id(scope, signs.parent_session)
        return Caller(
            identity,
            source,
            self._toolbox(identity, in_use=hints.has_tools),
            client=signs.client,
            parent=parent,
            stated_kind=signs.kind,
            has_tools=hints.has_tools,
            replied=replied,
            idle_s=key.idle_s if key is not None and derived else None,
        )

    def _derived(
        self,
        scope: str,
        key: ApiKey | None,
        session: SessionName | None,
        hints: Hints,
        awaits: Callable[[Identity], bool],
    ) -> tuple[Identity, str, Callable[[Sequence[bytes]], None] | None]:
        if session is not None:
            trajectory_id = derived_id(scope, session.parts)
            return Identity(trajectory_id, trajectory_id), f"session:{session.source}", None
        has_scope = key is not None and key.scope
        joined = self._lineage.trajectory(scope, hints, awaits, partial(_fresh, scope)) if has_scope else None
        if joined is not None:
            return joined[0], "lineage", partial(self._lineage.replied, scope, *joined)
        return fresh_lane(), "none", None

    def _lost(self, digest: str, group: str | None, who: Identity) -> bool:
        return self._awaits(_in_group(who, group), digest)

    def _toolbox(self, who: Identity, *, in_use: bool) -> Toolbox:
        if not who.named:
            return Toolbox(in_use)
        toolbox = self._toolboxes.setdefault(who, Toolbox())
        self._toolboxes.move_to_end(who)
        toolbox.in_use = toolbox.in_use or in_use
        if len(self._toolboxes) > TRAJECTORIES_MAX:
            self._toolboxes.popitem(last=False)
        return toolbox


def scope_of(key: ApiKey | None, path: str | None) -> str:
    """Within which a session's name counts. `:` and `=` are ours: they stand in no quoted text.

    >>> scope_of(None, None), scope_of(None, "team")
    ('local', 'team')
    """
    if key is None:
        return "local" if path is None else _quoted(path)
    own = _quoted(key.scope) if key.scope else f"key={_quoted(key.name or key.digest.hex()[:16])}"
    return own if path is None else f"{own}:{_quoted(path)}"


def derived_id(scope: str, parts: tuple[str, ...]) -> str:
    """The trajectory of a session; a long one ends in its hash.

    >>> derived_id("team", ("s 1", "agent/2"))
    'team/s%201/agent%2F2'
    """
    whole = "/".join((scope, *map(_quoted, parts)))
    if len(whole) <= READABLE_CHARACTERS_MAX:
        return whole
    return f"{whole[:64]}…{sha256(whole.encode()).hexdigest()}"


def _fresh(scope: str) -> Identity:
    trajectory_id = derived_id(scope, (new_id(),))
    return Identity(trajectory_id, trajectory_id)


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


def _quoted(text: str) -> str:
    return quote(text, safe="@")
