"""Which ranges of a topic are read to find positions."""

from claw_r1.eventlog.kafka.ranges import sweeps
from claw_r1.eventlog.records import Position


def test_sweeps_cover_every_position_and_read_neighbours_together() -> None:
    """Positions close together share a range, far ones get their own round, and partitions are read side by side."""
    near = [Position("t", 0, 5), Position("t", 0, 90), Position("t", 1, 7)]
    far = [Position("t", 0, 100_000)]
    assert sweeps([*far, *near]) == [{("t", 0): (5, 91), ("t", 1): (7, 8)}, {("t", 0): (100_000, 100_001)}]
    assert sweeps([]) == []
