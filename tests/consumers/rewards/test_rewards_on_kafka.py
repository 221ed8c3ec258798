"""From facts and rows on a real broker to rewards, through the real process."""

import pytest

from schemas.events import RewardAssigned
from tests.claw.pooled import write
from tests.consumers.published import group
from tests.consumers.rewards.fleet import fleet, until

pytestmark = pytest.mark.kafka

SCORERS = {
    "rule/call": {"use": "length", "scope": "call"},
    "rule/next": {"use": "after", "scope": "next"},
    "rule/steps": {"use": "steps", "scope": "steps"},
    "rule/whole": {"use": "length", "scope": "trajectory"},
    "rule/group": {"use": "members", "scope": "group"},
    "rule/silent": {"use": "silent", "scope": "call"},
}


def test_every_scope_finds_its_subjects_and_names_them(log_settings, tmp_path):
    """Two trajectories of two calls: each slot claims exactly what its scope says, once, in the partition of the group."""
    write(log_settings, group("g", [1.0, 0.0]))
    with fleet(log_settings, tmp_path, SCORERS) as scorers:
        process = scorers.start()
        until(lambda: len(scorers.values()) >= 16 or process.poll() is not None)
        values = scorers.values()
        assert {len(each) for each in values.values()} == {1}
        named = {
            (trajectory, call, name): value
            for (_, trajectory, call, name), ((_, value),) in ((slot, tuple(each)) for slot, each in values.items())
        }
    calls = [("g-0", "g-0-0"), ("g-0", "g-0-1"), ("g-1", "g-1-0"), ("g-1", "g-1-1")]
    expected = {(*call, name) for call in calls for name in ("rule/call", "rule/next", "rule/steps")}
    expected |= {(t, None, name) for t in ("g-0", "g-1") for name in ("rule/whole", "rule/group")}
    assert set(named) == expected
    assert named["g-0", "g-0-1", "rule/steps"] == 1.0
    assert named["g-1", None, "rule/group"] == 2.0
    assert all(isinstance(event, RewardAssigned) for event in scorers.rewards())
    assert process.returncode == 0, scorers.log()
