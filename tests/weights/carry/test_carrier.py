"""The store by which carriers find each other."""

import pytest

from claw_r1.weights.carry.carrier import store_at
from tests.ipv6 import needs_ipv6

pytestmark = pytest.mark.process


@needs_ipv6
def test_a_group_meets_where_there_is_ipv6_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """Rank 0 listens at the address by which workers reach it."""
    own = store_at(0, "::1", 0)
    port = int(capsys.readouterr().out.split()[1])
    own.set("word", "there")
    assert store_at(1, "::1", port).get("word") == b"there"
