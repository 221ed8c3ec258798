"""The limits on one record. What is beyond is left out, and makes nothing ready."""

from collections.abc import Sequence

MEMBERS_BYTES, BYTES_PER_MEMBER = 2 * 1024 * 1024, 128
CALLS_BYTES, BYTES_PER_CALL = 2 * 1024 * 1024, 16
FAILURES, SLOTS, JUDGEMENTS = 1000, 5000, 1000


def room(names: Sequence[str], bytes_max: int, bytes_each: int) -> int:
    """Returns how many of the names stand in a record: each one before which there are fewer bytes than `bytes_max`."""
    before = 0
    for count, name in enumerate(names):
        if before >= bytes_max:
            return count
        before += bytes_each + len(name.encode("utf-8", "surrogatepass"))
    return len(names)
