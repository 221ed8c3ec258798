"""Which version a worker serves."""

import pytest
from msgspec.structs import replace

from claw_r1.rollout.targets import Targets, accepts
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import WeightsPublished


def published(run_id: str, version: int, digest: str = "d", model_id: str = "m") -> WeightsPublished:
    return WeightsPublished(
        envelope=envelope("test"),
        model_id=model_id,
        run_id=run_id,
        version=version,
        digest=digest,
        bytes_total=0,
        manifest=(),
    )


@pytest.mark.parametrize(
    ("current", "event", "run_id", "expected"),
    [
        (None, published("a", 0), None, True),
        (None, published("a", 0, model_id="other"), None, False),
        (None, published("b", 0), "a", False),
        (published("a", 3), published("a", 4), None, True),
        (published("a", 3), published("a", 9), None, True),
        (published("a", 3), published("a", 2), None, False),
        (published("a", 3), published("b", 0), None, True),
        (published("a", 3), published("a", 3), None, True),
        (published("a", 3), published("a", 3, digest="e"), None, False),
    ],
)
def test_versions_go_forward_within_a_run(
    current: WeightsPublished | None, event: WeightsPublished, run_id: str | None, expected: bool
) -> None:
    """Another model or run is ignored, a newer run wins, a number is never taken with other bytes."""
    assert accepts(current, event, model_id="m", run_id=run_id) is expected


async def test_a_waiter_sees_the_newest_target_only() -> None:
    """Versions that come while the worker is busy are skipped in favour of the last."""
    targets = Targets("m", None)
    for version in range(3):
        targets.consider(published("a", version))
    await targets.changed(1)
    assert targets.latest is not None
    assert targets.latest.version == 2
    again = replace(targets.latest, offer_url="http://new")
    targets.consider(again)
    assert targets.latest is again


def test_a_version_that_was_served_is_not_given_up() -> None:
    """Two engines in a row end with a new version: it is given up for the one before; with that one it is the engines that fail."""
    targets = Targets("m", None)
    old, new = published("a", 0, "old"), published("a", 1, "new")
    targets.consider(old)
    targets.served(old)
    for _ in range(3):
        targets.failed(old, "why")
        assert (targets.goal, targets.refusal) == (old, None)
    targets.consider(new)
    targets.failed(new, "why")
    assert targets.goal is new
    targets.failed(new, "why")
    assert targets.goal is old
    assert "a/1 is given up, 2 engines" in (targets.refusal or "")


async def test_the_version_that_was_served_is_known_by_its_last_announcement() -> None:
    """Its export is announced while it is loaded, or after the next version: who goes back to it reads that one, too, and waits
    for nothing. Other bytes under its number are none."""
    targets = Targets("m", None)
    old, new = published("a", 0, "old"), published("a", 1, "new")
    exported = replace(old, checkpoint_uri="file:///exports/0")
    targets.consider(old)
    targets.consider(exported)
    targets.served(old)
    targets.consider(new)
    targets.failed(new, "why")
    targets.failed(new, "why")
    assert targets.goal is exported
    await targets.changed(1)
    again = replace(old, checkpoint_uri="file:///exports/again")
    targets.consider(again)
    await targets.changed()
    assert targets.goal is again
    targets.consider(published("a", 0, "others"))
    assert (targets.goal, targets.latest) == (again, new)
