"""Idempotency keys of judgements: a key is for one body, and its first use sets the time of the event.

So a late retry does not outrank events in between. Known to this process alone, and of the last `KEYS_MAX`
keys: elsewhere, after a restart too, a repeated request makes the same event again, at the time of its repetition.
"""

import hashlib
from collections import OrderedDict

from claw_r1.gateway.errors import KeyOfOtherBody

KEYS_MAX = 10_000


class KeyedBodies:
    """Belongs to the loop's thread. key None: a request without one, which is new. place: what
    is judged, and by whom."""

    def __init__(self) -> None:
        self._first: OrderedDict[tuple[str, ...], tuple[bytes, int]] = OrderedDict()

    def first_us(self, key: str | None, place: tuple[str, ...], body: str, at_us: int) -> int:
        """Returns the time when this body came first under the key; at_us where none did. Raises KeyOfOtherBody where
        another did."""
        digest, first_us = self._first.get((key or "", *place), (_digest(body), at_us))
        if digest != _digest(body):
            raise KeyOfOtherBody("this idempotency key was used for another body: give each request a key of its own")
        return first_us

    def note(self, key: str | None, place: tuple[str, ...], body: str, at_us: int) -> None:
        """The request is a good one, and stored from now on."""
        if key:
            self._first.setdefault((key, *place), (_digest(body), at_us))
        if len(self._first) > KEYS_MAX:
            self._first.popitem(last=False)


def _digest(body: str) -> bytes:
    return hashlib.sha256(body.encode("utf-8", "surrogatepass")).digest()
