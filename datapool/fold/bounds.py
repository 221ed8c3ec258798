"""The limits on one record: the log takes none above `LARGEST_RECORD_BYTES`, and nothing of a group must ever exceed
it.

Invariant: the content of a record is a function of the set of facts, so the kept part of too many does not
depend on arrival order. Lists remade from other rows (members, calls) are cut by bytes. Lists kept only in the
record (failed calls, reward slots, judgements) are cut by number: the first ones of all ever seen, each with
all its facts, because a dropped entry always has enough before it. A full record says so.
"""

from collections.abc import Collection, Sequence

from claw_r1.schemas.topics import LARGEST_RECORD_BYTES

RECORD_BYTES_MAX = LARGEST_RECORD_BYTES - (64 << 10)
"""Key and value of a row; the rest is for its headers, for flags, and for the batch around it."""
GROUP_MEMBERS_BYTES_MAX = 2 << 20
"""Members of a group, and once more the list of its closing: 12,788 with ids of 36 bytes, 964 with the longest that the
gateway takes."""
MEMBER_BYTES = 128
"""A member beside its id, at most."""
GROUP_SIZE_MAX = 10_000
"""Members that a group may be declared with, and that one which nobody declared stays below."""
TRAJECTORY_CALLS_BYTES_MAX = 2 << 20
"""Calls of a trajectory: 40,330 with ids of 36 bytes."""
CALL_BYTES = 16
"""A call beside its id, at most: the length of its id, and its offset."""
FAILED_CALLS_MAX = 1000
"""Failed calls that a trajectory names, the first by name: they only tell people."""
REWARDS_MAX = 5000
"""Reward slots of a trajectory (by index, too) and of a call, the first by (index, source, name)."""
JUDGEMENTS_MAX = 1000
"""Judgements of a call, the highest by (revision, time, event id)."""
PLAN_BYTES_MAX = 6 << 20
"""Trajectories and calls of one plan."""
SKIPPED_GROUPS_MAX = 1000
"""Groups of one BatchSkipped; more of a reason make several."""
ID_CHARACTERS_MAX = 4096
"""The longest id of a group, trajectory or call: they make the keys of rows, which cannot be cut. The gateway takes
512."""
UTF8_BYTES_MAX = 4
"""The most bytes of one character."""


def within(names: Sequence[str], each_bytes: int, bytes_max: int) -> Sequence[str]:
    """The names, in their order, before which the others take less than so many bytes. each_bytes: beside the name."""
    if UTF8_BYTES_MAX * sum(map(len, names)) + each_bytes * len(names) < bytes_max:
        return names
    size_bytes = 0
    for number, name in enumerate(names):
        if size_bytes >= bytes_max:
            return names[:number]
        size_bytes += name_bytes(name) + each_bytes
    return names


def fit_in_group(members: Collection[str]) -> Sequence[str]:
    """Returns the first trajectory_ids, in order, that have room in a group's record."""
    return within(sorted(members), MEMBER_BYTES, GROUP_MEMBERS_BYTES_MAX)


def name_bytes(name: str) -> int:
    """Returns the bytes of a name in a record."""
    return len(name.encode("utf-8", "surrogatepass"))
