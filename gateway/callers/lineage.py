"""Calls that no client names, joined by their messages: a request that begins with all messages of an earlier one continues it.

Invariant: where two trajectories fit, none is taken: one trajectory in two parts is mended by whoever names sessions, two
agents in one by nobody. The memory is this process's, and bounded; what it forgot begins anew.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from hashlib import blake2b

import orjson

from gateway.callers.hints import Hints
from gateway.identity import Identity

ENTRIES_MAX = 50_000
OWNERS_MAX = 16
"""Trajectories remembered for one beginning; there is no telling them apart any more."""
BEFORE_AGENTS = ("system", "developer")
"""Roles of messages that many conversations begin with."""


class Lineage:
    """Which trajectories of a scope had a request with exactly these messages, and whether it is their last one."""

    def __init__(self, entries_max: int = ENTRIES_MAX) -> None:
        self._entries_max = entries_max
        self._owners: OrderedDict[tuple[str, bytes], dict[Identity, bool]] = OrderedDict()

    def trajectory(
        self, scope: str, hints: Hints, awaits: Callable[[Identity], bool], fresh: Callable[[], Identity]
    ) -> Identity | None:
        """Whose call this is, remembered; None for one without messages.

        awaits: whether a trajectory never got its reply to this very request. fresh: makes a trajectory.
        """
        beginnings = list(_digests(hints))
        if not beginnings:
            return None
        *earlier, whole = beginnings
        asked_again = (who for who in self._owners.get((scope, whole), ()) if awaits(who))
        who = next(asked_again, None) or self._continued(scope, earlier) or fresh()
        if _role(hints.messages[-1]) not in BEFORE_AGENTS:
            self._remember(scope, whole, who)
        return who

    def _continued(self, scope: str, earlier: list[bytes]) -> Identity | None:
        """The one trajectory whose request is the longest beginning of this one; of several, the one that did not go on yet."""
        key = next((key for digest in reversed(earlier) if (key := (scope, digest)) in self._owners), None)
        if key is None:
            return None
        owners = self._owners[key]
        waiting = [who for who, is_last in owners.items() if is_last] or list(owners)
        if len(waiting) > 1:
            return None
        owners[waiting[0]] = False
        return waiting[0]

    def _remember(self, scope: str, digest: bytes, who: Identity) -> None:
        owners = self._owners.setdefault((scope, digest), {})
        self._owners.move_to_end((scope, digest))
        if who in owners or len(owners) < OWNERS_MAX:
            owners[who] = True
        if len(self._owners) > self._entries_max:
            self._owners.popitem(last=False)


def _digests(hints: Hints) -> Iterator[bytes]:
    """A digest of each beginning of the messages, the shortest first; none of what cannot be written again."""
    try:
        written = [orjson.dumps(hints.opening), *(orjson.dumps(_lasting(message)) for message in hints.messages)]
    except TypeError:  # nested too deeply
        return
    running = blake2b(written[0], digest_size=16)
    for message in written[1:]:
        running.update(message)
        yield running.digest()


def _lasting(message: object) -> object:
    """The message without marks that clients move from turn to turn."""
    content = message.get("content") if isinstance(message, dict) else None
    if not (isinstance(message, dict) and isinstance(content, list)):
        return message
    parts = [
        {name: value for name, value in part.items() if name != "cache_control"} if isinstance(part, dict) else part
        for part in content
    ]
    return {**message, "content": parts}


def _role(message: object) -> object:
    return message.get("role") if isinstance(message, dict) else None
