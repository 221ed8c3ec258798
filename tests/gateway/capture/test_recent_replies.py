"""What is remembered of the calls that were answered: the last of each trajectory, and of all trajectories so many."""

from claw_r1.gateway.capture.recent_replies import RecentReplies
from claw_r1.gateway.paths import Identity
from claw_r1.schemas.events import VersionSpan

ONE, OTHER, THIRD = (Identity(name, name) for name in "abc")


def named(replied: RecentReplies, who: Identity) -> list[str | None]:
    return [call["call_id"] for call in replied.of(who)]


def test_the_last_calls_of_a_trajectory_are_remembered() -> None:
    """An agent with one constant path grows nothing without end."""
    replied = RecentReplies(calls_max=3)
    for number in range(10):
        replied.note(ONE, str(number), (VersionSpan(run_id="r", version=number, start=0, end=1),))
    assert replied.of(ONE)[-1] == {"call_id": "9", "policy_version": "r/9"}
    assert named(replied, ONE) == ["7", "8", "9"]


def test_the_trajectory_that_was_silent_for_longest_is_forgotten_first() -> None:
    """When all together are too many; never the one that speaks."""
    replied = RecentReplies(calls_max=3, all_calls_max=4)
    for who, count in ((ONE, 2), (OTHER, 1), (ONE, 1), (THIRD, 1)):
        for number in range(count):
            replied.note(who, str(number), ())
    assert [len(named(replied, who)) for who in (ONE, OTHER, THIRD)] == [3, 0, 1]
    for number in range(9):
        replied.note(THIRD, str(number), ())
    assert [len(named(replied, who)) for who in (ONE, OTHER, THIRD)] == [0, 0, 3]
