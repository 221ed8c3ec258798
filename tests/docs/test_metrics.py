"""docs/metrics.md says what the code has, by the conventions of Prometheus, and no label can grow without a bound."""

import re

import pytest

from tests.docs.metrics_page import PAGE, ROOMS, described, with_tables

CLIENTS_OWN = frozenset({
    "call_id", "trajectory_id", "group_id", "run_id", "task", "user", "key", "model", "path", "producer", "worker", "url", "event_id",
})  # fmt: skip
"""Words that clients choose, so that a label of that name could have any number of values."""


def test_the_page_is_up_to_date() -> None:
    """Writing the tables again changes nothing (`python -m tests.docs.metrics_page` brings them up to date)."""
    assert with_tables(PAGE.read_text()) == PAGE.read_text()


@pytest.mark.parametrize("room", ROOMS)
def test_names_and_labels_follow_the_conventions(room: str) -> None:
    """Ours begin with claw_, say their unit in full at the end, mean something, and carry no label that a client chooses."""
    rows = list(described(ROOMS[room]()))
    ours = [row for row in rows if not row.name.startswith("process_")]
    assert ours
    for row in ours:
        assert row.name.startswith("claw_")
        assert not re.search(r"_(s|ms|mb|gb)(_total)?$", row.name), row
        assert len(row.meaning) > 8, row
        assert not CLIENTS_OWN & set(row.labels), row
    assert len({row.name for row in rows}) == len(rows)
