"""What a row of `claw pool` says."""

from claw_r1.claw.pool.listing import LINES
from tests import facts
from tests.trainer.pooled import group, pooled


def test_a_row_says_which_rewards_have_no_value() -> None:
    """Of a step and of a trajectory; one that was never given says nothing."""
    events = [
        *group("g", [1.0]),
        facts.gave_up("g", "t0"),
        facts.reward("g", "t0", None, source="human:ann", name="thumb", call_id="c0"),
    ]
    rows = pooled(events).pool
    (trajectory,) = rows.trajectory_rows()
    lines = [LINES["steps"](step) for step in rows.steps("g", "t0")]
    assert "return 1 (judge/style failed (deadline))  ready" in LINES["trajectories"](trajectory)
    assert "reward - (human:ann/thumb taken back)  quality" in lines[0]
    assert "reward -  quality" in lines[1]
