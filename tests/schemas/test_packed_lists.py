"""Lists whose items are encoded one by one stand in an event as if they had been encoded with it."""

import pytest

from claw_r1.schemas.codec import encode, encode_item
from claw_r1.schemas.events import GroupMember, GroupRecord, TrajectoryRecord


@pytest.mark.parametrize("items", [0, 1, 3, 200])
def test_packed_lists_are_the_bytes_of_the_whole_event(items):
    """In any pieces, of plain values and of records, with fields before, between and behind."""
    ids, offsets = [f"c{number}" * 20 for number in range(items)], [number << 20 for number in range(items)]
    trajectory = TrajectoryRecord(
        group_id="g",
        trajectory_id="t",
        status="open",
        calls=tuple(ids),
        offsets=tuple(offsets),
        branches=7,
        ready=False,
    )
    packed = {
        "calls": (items, [encode_item(TrajectoryRecord, "calls", call_id) for call_id in ids]),
        "offsets": (items, [b"".join(encode_item(TrajectoryRecord, "offsets", offset) for offset in offsets)]),
    }
    assert encode(trajectory, packed) == encode(trajectory)
    member = GroupMember(trajectory_id="t", status="failed", ready=True, return_total=0.5, min_version=3, digest="d")
    group = GroupRecord(group_id="g", declared=True, members=(member,) * items, ready=False)
    one = encode_item(GroupRecord, "members", member)
    assert encode(group, {"members": (items, [one] * items)}) == encode(group)
