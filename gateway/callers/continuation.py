"""Calls that no client names, joined by their messages: a request that begins with all messages of an earlier one continues it.

Invariant: where two trajectories fit, none is taken: one trajectory in two parts is mended by whoever names sessions, two
agents in one by nobody. The memory is this process's, and bounded; what it forgot begins anew.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import orjson

from claw_r1.gateway.callers.caller_fields import Hints
from claw_r1.gateway.paths import Identity

ENTRIES_MAX = 20_000
OWNERS_MAX = 16
"""Trajectories remembered for one beginning."""
TEXTS_MAX = 1000
BEFORE_AGENTS = ("system", "developer")
"""Roles of messages that many conversations begin with."""


@dataclass(slots=True)
class Beginning:
    """One trajectory's request with certain messages."""

    is_last: bool = True
    """The agent did not go on from there yet."""
    reply: frozenset[int] = frozenset()
    """Hashes of the texts in what it got; empty while unknown."""


class Continuations:
    """The trajectories of each scope that had a request with exactly these messages."""

    def __init__(self, entries_max: int = ENTRIES_MAX) -> None:
        self._entries_max = entries_max
        self._owners: OrderedDict[tuple[str, bytes], dict[Identity, Beginning]] = OrderedDict()
        self._replies: OrderedDict[tuple[str, str], Identity] = OrderedDict()
        """By the ids of replies."""

    def trajectory(
        self, scope: str, hints: Hints, awaits: Callable[[Identity], bool], fresh: Callable[[], Identity]
    ) -> tuple[Identity, Beginning] | None:
        """Returns the trajectory of the call, remembered; None for one without messages. Its reply is to be told to
        `note_reply`.

        awaits: whether a trajectory never got its reply to this very request. fresh: makes a trajectory.
        """
        if hints.previous is not None:  # its messages are the newest alone, and tell nothing
            return self._replies.get((scope, hints.previous)) or fresh(), Beginning()
        digests = list(_digests(hints))
        if not digests:
            return None
        *earlier, whole = digests
        asked_again = (who for who in self._owners.get((scope, whole), ()) if awaits(who))
        who = next(asked_again, None) or self._continued(scope, earlier, hints) or fresh()
        if all(_role(message) in BEFORE_AGENTS for message in hints.messages):
            return who, Beginning()
        return who, self._remember(scope, whole, who)

    def note_reply(self, scope: str, who: Identity, beginning: Beginning, bodies: Sequence[bytes]) -> None:
        """Take note of a reply, in JSON, one body for each choice."""
        try:
            replies = [orjson.loads(body) for body in bodies]
        except orjson.JSONDecodeError:
            return
        texts = frozenset(hash(text) for text in _texts(replies))
        beginning.reply = texts if len(texts) <= TEXTS_MAX else frozenset()
        ids = [reply.get("id") for reply in replies if isinstance(reply, dict)]
        self._replies.update({(scope, name): who for name in ids if isinstance(name, str)})
        while len(self._replies) > self._entries_max:
            self._replies.popitem(last=False)

    def _continued(self, scope: str, earlier: list[bytes], hints: Hints) -> Identity | None:
        """The trajectory whose request is the longest beginning of this one."""
        for length in range(len(earlier), 0, -1):
            owners = self._owners.get((scope, earlier[length - 1]))
            if owners:
                who = _only(owners, hints.messages[length])
                if who is not None:
                    owners[who].is_last = False
                return who
        return None

    def _remember(self, scope: str, digest: bytes, who: Identity) -> Beginning:
        """Remembers a request; a repeated one keeps the reply that it got."""
        owners = self._owners.setdefault((scope, digest), {})
        self._owners.move_to_end((scope, digest))
        beginning = owners.get(who) or Beginning()
        if who in owners or len(owners) < OWNERS_MAX:
            owners[who] = beginning
        if len(self._owners) > self._entries_max:
            self._owners.popitem(last=False)
        return beginning


def _only(owners: Mapping[Identity, Beginning], answer: object) -> Identity | None:
    """The one that got this answer; of several with equal answers the one that did not go on yet.

    Another process may have answered an agent that began alike: so one that got another answer is not taken, though it be
    the only one. Of one that got none that is known, its beginning has to do.
    """
    if len(owners) >= OWNERS_MAX:  # there may be more
        return None
    texts = {hash(text) for text in _texts(_lasting(answer))}
    fitting = [who for who, beginning in owners.items() if texts <= beginning.reply]
    if len(owners) == 1 and not next(iter(owners.values())).reply:
        return next(iter(owners))
    if len(fitting) > 1:
        fitting = [who for who in fitting if owners[who].is_last]
    return fitting[0] if len(fitting) == 1 else None


def _texts(value: object) -> Iterator[str]:
    """The texts in a JSON value, but names of members and of kinds (`type`), which clients write as they like; a text that is
    JSON itself (arguments of a tool) without its spaces."""
    values = [value]
    while values:
        value = values.pop()
        if isinstance(value, str):
            yield _compact(value) if value[:1] in ("{", "[") else value
        elif isinstance(value, (dict, list)):
            values += (each for name, each in value.items() if name != "type") if isinstance(value, dict) else value


def _compact(text: str) -> str:
    try:
        return orjson.dumps(orjson.loads(text)).decode()
    except (orjson.JSONDecodeError, TypeError):
        return text


def _digests(hints: Hints) -> Iterator[bytes]:
    """A digest of each beginning of the messages, the shortest first; none of what cannot be written again."""
    try:
        opening = [_lasting({"content": part}) for part in hints.opening]
        written = [orjson.dumps(opening), *(orjson.dumps(_lasting(message)) for message in hints.messages)]
    except TypeError:  # nested too deeply
        return
    running = blake2b(written[0], digest_size=16)
    for message in written[1:]:
        running.update(message)
        yield running.digest()


def _lasting(message: object) -> object:
    """The message without marks that clients move from turn to turn; a text that is its only part, as the text (Claude Code
    writes a marked text as a part, and without its mark as a text)."""
    content = message.get("content") if isinstance(message, dict) else None
    if not (isinstance(message, dict) and isinstance(content, list)):
        return message
    parts = [
        {name: value for name, value in part.items() if name != "cache_control"} if isinstance(part, dict) else part
        for part in content
    ]
    only = parts[0] if len(parts) == 1 else None
    is_text = isinstance(only, dict) and only.keys() == {"type", "text"} and only["type"] == "text"
    return {**message, "content": only["text"] if is_text and isinstance(only, dict) else parts}


def _role(message: object) -> object:
    return message.get("role") if isinstance(message, dict) else None
