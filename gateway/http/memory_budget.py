"""Bytes that the requests of one process hold, all together.

Invariant: what a request took is given back when it is over, however it ends. A request that finds no room is refused;
a reply never is, since an engine has worked for it: it counts, and keeps new requests out. Limits of one request times
the number of requests would be more than any memory.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Budget:
    """Request bodies from their first byte, and replies, until they are with their clients."""

    bytes_max: int
    held_bytes: int = 0

    @property
    def left_bytes(self) -> int:
        """Room for requests; below 0 where replies took more."""
        return self.bytes_max - self.held_bytes
