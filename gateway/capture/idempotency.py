"""Retries of a call: which requests are the same call, and what a client that never saw its reply gets.

Invariant: a client that repeats a request gets the reply that was captured for it, as long as this process remembers
it; and of the captures of a call the last received is of the reply that its agent got last, whoever answered. So the
tokens that the pool counts are the tokens that the agent went on with.

- With an idempotency key, the call id is a function of (group, trajectory, key): every gateway, before or after a
  restart, gives the same one. The fold counts a call once, so the agent's own count of its calls stays right.
- Without a key, a request is a recent call of its trajectory with the same body whose last attempt came to nothing: it
  failed, it broke off, or its client was gone before it had taken the whole reply. Many agents ask again so, without a
  count. Of several such calls each is asked again once, the oldest first: nobody saw a reply of any of them.
- Without a key, and where every reply was taken, a request that says it is a retry (retry count > 0) and has the same body
  as exactly one recent call is that call. Where several recent calls had this body (parallel samples), it is a new call: a
  call too many is seen by the completion's count, a wrong reply is seen by nobody.
- A finished reply is repeated, byte for byte, and nothing is generated again. Under a key it is captured again, as this
  try: another gateway may have answered meanwhile. Without a key the call is this process's alone, and nothing is
  captured again; if its event was never acknowledged, the *same* event (same event_id) is published before.
- A reply that this process does not have (still running, failed, evicted, kept from the log by a bug, made by another
  process) is generated anew, as the next attempt of the call: the retry count that the client gives, or one more than
  the attempts seen here.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from claw_r1.gateway.errors import HeaderList, InvalidRequest
from claw_r1.gateway.headers import ClientHeaders
from claw_r1.gateway.paths import Identity
from claw_r1.schemas.envelopes import decision_id, new_id
from claw_r1.schemas.events import CallCaptured
from claw_r1.schemas.http import IDEMPOTENCY_KEY_HEADER

AttemptSlot = tuple[str, str, str]
EQUAL_CALLS_MAX = 16
"""Calls with one body that are remembered beside the newest: any of them may come to nothing."""
EVENT_BYTES = 2000
"""The bytes of an event's own objects, besides what it holds."""


class Finished(NamedTuple):
    """A reply, and the events of it that have to be acknowledged before the next client may see it."""

    body: bytes
    headers: HeaderList
    events: tuple[CallCaptured, ...]
    """The events that were not acknowledged yet; under a key all, since each repeat is captured."""

    @property
    def size_bytes(self) -> int:
        return len(self.body) + sum([_event_bytes(event) for event in self.events])


@dataclass(slots=True)
class _Entry:
    call_id: str
    digest: str
    seen_at_s: float
    attempts: int = 1
    is_lost: bool = False
    """Its last attempt came to nothing: whoever asks for the same asks again for this."""
    equals: "tuple[_Entry, ...]" = ()
    """Earlier recent calls with this body, without their replies."""
    finished: Finished | None = None
    finished_attempt: int = -1


class Attempt(NamedTuple):
    """One try of a call. `finished` is the reply to repeat, if there is one."""

    slot: AttemptSlot
    call_id: str
    number: int
    finished: Finished | None = None
    keyed: bool = False
    """The same call at every gateway: this one may not be the last to answer it."""


class RecentCalls:
    """The calls of the last `window_s`, from their reply if there is one; bounded in number and bytes, the
    oldest go first."""

    def __init__(
        self, window_s: float, entries_max: int, bytes_max: int, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._window_s, self._entries_max, self._bytes_max, self._clock_s = window_s, entries_max, bytes_max, clock_s
        self._entries: OrderedDict[AttemptSlot, _Entry] = OrderedDict()
        self._bytes = 0

    def begin(self, identity: Identity, headers: ClientHeaders, digest: str) -> Attempt:
        """The call that a request is. `digest` is of its protocol and body. Raises InvalidRequest for a key used for two."""
        keyed = headers.idempotency_key is not None
        slot = _slot(identity, headers.idempotency_key, digest)
        if not identity.named:  # made up for this one request: nobody can ask again
            return Attempt(slot, new_id(), headers.retry_count or 0)
        entry = self._entries.get(slot)
        recent = entry if entry and self._is_recent(entry) else None
        if recent and recent.digest != digest:
            raise InvalidRequest(
                "this idempotency key was used for another request",
                param=IDEMPOTENCY_KEY_HEADER,
                code="idempotency_key_reused",
            )
        if recent and (same := recent if keyed else self._asked_again(recent, headers)):
            number = max(same.attempts, headers.retry_count or 0)
            same.attempts, same.is_lost = number + 1, False
            return Attempt(slot, same.call_id, number, same.finished, keyed)
        # A key is one call for ever, so its attempts go on being counted when their replies are forgotten.
        number = max(headers.retry_count or 0, entry.attempts if entry and keyed else 0)
        call_id = _call_id(identity, headers.idempotency_key)
        equals = tuple(filter(self._is_recent, (*recent.equals, recent)))[-EQUAL_CALLS_MAX:] if recent else ()
        self._remember(slot, _Entry(call_id, digest, self._clock_s(), number + 1, equals=equals))
        return Attempt(slot, call_id, number, keyed=keyed)

    def awaits(self, identity: Identity, digest: str) -> bool:
        """Returns whether a request with this body, and without a key, would be another attempt of a call that came to
        nothing."""
        entry = self._entries.get(_slot(identity, None, digest))
        return entry is not None and self._lost_call(entry) is not None

    def lost(self, attempt: Attempt) -> None:
        """An attempt came to nothing. Without effect when a later one is under way."""
        entry = self._entries.get(attempt.slot)
        for one in (*entry.equals, entry) if entry else ():
            if one.call_id == attempt.call_id and one.attempts == attempt.number + 1:
                one.is_lost, one.seen_at_s = True, self._clock_s()

    def finish(self, attempt: Attempt, finished: Finished) -> None:
        """Keep the reply of an attempt for whoever asks again: of several, that of the highest, which is the one that counts."""
        entry = self._entries.get(attempt.slot)
        if entry is None or entry.call_id != attempt.call_id or attempt.number < entry.finished_attempt:
            return
        self._bytes += finished.size_bytes - _size(entry)
        entry.finished, entry.finished_attempt, entry.seen_at_s = finished, attempt.number, self._clock_s()
        self._shrink()

    def acknowledged(self, attempt: Attempt, finished: Finished) -> None:
        """The reply's events are in the log: without a key it can be repeated from now on without publishing."""
        self.finish(attempt, finished if attempt.keyed else finished._replace(events=()))

    def forget(self, attempt: Attempt, finished: Finished) -> None:
        """A bug keeps the reply from the log, and would do so each time: whoever asks again shall get another one."""
        entry = self._entries.get(attempt.slot)
        if entry is not None and entry.finished is finished:
            self._bytes -= _size(entry)
            entry.finished, entry.finished_attempt = None, -1

    def _asked_again(self, recent: _Entry, headers: ClientHeaders) -> _Entry | None:
        """The call that a request without a key asks for again."""
        if lost := self._lost_call(recent):
            return lost
        return recent if headers.retry_count and not recent.equals else None

    def _lost_call(self, entry: _Entry) -> _Entry | None:
        return next((one for one in (*entry.equals, entry) if one.is_lost and self._is_recent(one)), None)

    def _is_recent(self, entry: _Entry) -> bool:
        return self._clock_s() - entry.seen_at_s <= self._window_s

    def _remember(self, slot: AttemptSlot, entry: _Entry) -> None:
        replaced = self._entries.pop(slot, None)
        self._bytes -= _size(replaced)
        if replaced is not None:
            replaced.equals, replaced.finished = (), None
        self._entries[slot] = entry
        self._shrink()

    def _shrink(self) -> None:
        while self._entries and (len(self._entries) > self._entries_max or self._bytes > self._bytes_max):
            self._bytes -= _size(self._entries.popitem(last=False)[1])


def _event_bytes(event: CallCaptured) -> int:
    parts = event.prompt.suffix, event.request.suffix, event.response_ids, event.response_logprobs, event.response_body
    return EVENT_BYTES + sum([len(part) for part in parts])


def _size(entry: _Entry | None) -> int:
    return entry.finished.size_bytes if entry and entry.finished else 0


def _slot(identity: Identity, key: str | None, digest: str) -> AttemptSlot:
    return identity.group_id, identity.trajectory_id, f"body:{digest}" if key is None else f"key:{key}"


def _call_id(identity: Identity, key: str | None) -> str:
    return new_id() if key is None else decision_id("call", identity.group_id, identity.trajectory_id, key)
