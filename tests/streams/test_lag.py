"""When a worker is held to be stalled."""

from claw_r1.streams.lag import Watchdog


def test_a_watchdog_barks_only_when_facts_wait_and_none_is_folded():
    """Idle is fine, slow is fine, stuck is not."""
    dog = Watchdog(10.0)
    assert not dog.stalled(processed=5, lag=3, now_s=100)
    assert not dog.stalled(processed=5, lag=3, now_s=109)
    assert not dog.stalled(processed=6, lag=300, now_s=110)
    assert not dog.stalled(processed=6, lag=0, now_s=200)
    assert not dog.stalled(processed=6, lag=1, now_s=209)
    assert dog.stalled(processed=6, lag=1, now_s=210)
