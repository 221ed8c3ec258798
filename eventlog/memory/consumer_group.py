"""The members of a consumer group and their partition numbers, assigned like by Kafka's group coordinator. For the
memory log.

Invariant: a number has one holder; it is given to the next only after the holder gave it up, or was put out of the
group because it was silent for longer than its work may take. Not thread-safe: the memory log's lock is held around it.
"""

import time


class MemoryGroup:
    """Each member has a number of its own."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._deadlines: dict[int, float] = {}
        self._holders: dict[int, int] = {}

    def renew(self, member: int, work_timeout_s: float) -> bool:
        """A sign of life. False when the member was not in the group, which it is from now on."""
        now = time.monotonic()
        for silent in [other for other, deadline in self._deadlines.items() if deadline < now and other != member]:
            self.leave(silent)
        is_member = member in self._deadlines
        self._deadlines[member] = now + work_timeout_s
        return is_member

    def leave(self, member: int) -> None:
        self._deadlines.pop(member, None)
        self.release(member, self.held(member))

    def held(self, member: int) -> set[int]:
        return {number for number, holder in self._holders.items() if holder == member}

    def share(self, member: int) -> set[int]:
        """The numbers that the member should hold: a contiguous range, as Kafka's `range` assignor gives it."""
        if member not in self._deadlines:
            return set()
        members = sorted(self._deadlines)
        size, rest = divmod(self._partitions, len(members))
        place = members.index(member)
        start = place * size + min(place, rest)
        return set(range(start, start + size + (place < rest)))

    def release(self, member: int, numbers: set[int]) -> None:
        self._holders = {
            number: holder for number, holder in self._holders.items() if holder != member or number not in numbers
        }

    def take(self, member: int) -> set[int]:
        """Takes what nobody holds of the member's share, and returns it."""
        free = self.share(member) - self._holders.keys()
        self._holders |= dict.fromkeys(free, member)
        return free
