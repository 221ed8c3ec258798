"""What a planner says of groups that are never trained."""

from datapool.bounds import SKIPPED_GROUPS_MAX
from trainer.planner import by_reason


def test_a_backlog_that_is_skipped_is_told_in_events_of_a_bounded_size() -> None:
    """200,000 stale groups in one event were more than the log takes, and ended the trainer; each group is told once."""
    stale = [f"g{number:05}" for number in range(2 * SKIPPED_GROUPS_MAX + 1)]
    told = list(by_reason(dict.fromkeys(stale, "too_stale") | {"solved": "reward_mean_high"}))
    assert [(reason, len(group_ids)) for reason, group_ids in told] == [
        ("reward_mean_high", 1),
        ("too_stale", SKIPPED_GROUPS_MAX),
        ("too_stale", SKIPPED_GROUPS_MAX),
        ("too_stale", 1),
    ]
    assert [name for reason, group_ids in told[1:] for name in group_ids] == stale
