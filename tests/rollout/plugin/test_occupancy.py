"""What an engine does with its seconds."""

from claw_r1.rollout.plugin.occupancy import Occupancy


def test_each_second_counts_once() -> None:
    """Serving while a call is in it, idle while none is, paused while weights change, whoever waits meanwhile."""
    now = [0.0]
    occupancy = Occupancy(lambda: now[0])
    steps = [
        (1.0, occupancy.enter),
        (2.0, occupancy.enter),
        (4.0, lambda: occupancy.pause(True)),
        (8.0, occupancy.leave),
        (16.0, lambda: occupancy.pause(False)),
        (32.0, occupancy.leave),
        (64.0, lambda: None),
    ]
    for seconds, step in steps:
        now[0] += seconds
        step()
    assert occupancy.seconds() == {"idle": 65.0, "serving": 38.0, "paused": 24.0}
    assert sum(occupancy.seconds().values()) == now[0]
