"""Ids of events."""

from claw_r1.schemas.envelopes import decision_id, new_id


def test_ids_of_observations_sort_by_time_and_ids_of_decisions_repeat() -> None:
    """new_id is a UUID of version 7; decision_id depends on its subject alone, part by part."""
    first, second = new_id(), new_id()
    assert first[14] == "7"
    assert first[:13] <= second[:13]
    assert first != second
    assert decision_id("a", "b") == decision_id("a", "b") != decision_id("ab", "")
