"""When a worker writes what it folded."""

import pytest

from streams.flush import flush_due


@pytest.mark.parametrize(
    ("fetched", "since_s", "due"), [(0, 0.0, True), (1, 0.0, False), (4096, 1.9, False), (1, 2.0, True)]
)
def test_a_flush_waits_while_facts_wait_and_never_for_long(fetched, since_s, due):
    """An idle worker writes at every interval; one that lags gathers more, up to `flush_behind_s`."""
    assert flush_due(fetched, since_s, behind_s=2.0) is due
