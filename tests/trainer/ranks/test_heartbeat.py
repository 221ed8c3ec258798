"""Who is silent, by the clock of whoever looks."""

from claw_r1.trainer.ranks.heartbeat import Signs


def test_what_does_not_change_is_silent():
    """A count that stands still for longer than the limit; one that never came is not silent."""
    signs = Signs(0.0)
    for second in range(20):
        signs.see({1: second, 2: min(second, 4)}, float(second))
    assert signs.silent(14.0) == [2]
    assert signs.silent(15.0) == []
    assert Signs(0.0).silent(1.0) == []


def test_whoever_was_away_accuses_nobody():
    """A process that was stopped and goes on sees old counts first, and gives the others their time."""
    signs = Signs(0.0)
    signs.see({1: 7}, 1.0)
    signs.see({1: 7}, 100.0)
    assert signs.silent(15.0) == []
