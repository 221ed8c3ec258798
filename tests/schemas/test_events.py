"""Events as values."""

import pytest

from claw_r1.schemas.events import EVENT_TYPES
from claw_r1.schemas.topics import TOPICS
from tests.schemas.examples import EVENTS


@pytest.mark.parametrize("name", sorted(EVENT_TYPES))
def test_events_are_frozen_values(name: str) -> None:
    """An event cannot be changed after it is made, and stands on exactly one topic."""
    event = EVENTS[name]
    with pytest.raises(AttributeError, match="immutable"):
        setattr(event, event.__struct_fields__[0], "other")
    assert not hasattr(event, "__dict__")
    assert len([topic.name for topic in TOPICS if name in topic.records]) == 1
