"""A copy with other fields."""

import dataclasses

import pytest

from datapool.changed import changed, copier
from datapool.fold.state import GroupState, StepState, TrajectoryState
from schemas.events import TrajectoryRecord

RECORD = TrajectoryRecord(group_id="g", trajectory_id="t", status="open", ready=False)


@pytest.mark.parametrize(
    ("value", "fields"),
    [
        (GroupState("g"), {"run_id": "r", "buggy": True}),
        (TrajectoryState(), {"channel": "val"}),
        (StepState(), {}),
        (RECORD, {"calls": ("c",), "branches": 1, "ready": True}),
    ],
)
def test_it_is_what_the_standard_library_makes(value, fields):
    """Equal in every field, another object, and frozen like the first."""
    copy = changed(value, **fields)
    assert copy == dataclasses.replace(value, **fields)
    assert copy is not value
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(copy, dataclasses.fields(copy)[0].name, None)


def test_a_field_that_does_not_exist_is_refused():
    """A typing error does not vanish."""
    with pytest.raises(TypeError, match="no field typo"):
        changed(RECORD, typo=1)


def test_a_copier_takes_its_fields_in_order():
    """The same copy, for a place that always changes the same fields."""
    state = TrajectoryState(agent="a")
    assert copier(TrajectoryState, "run_id", "channel")(state, "r", "val") == changed(state, run_id="r", channel="val")
