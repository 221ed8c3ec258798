"""The sources of a version's bytes: to whom a worker speaks, and how."""

import ssl

import pytest

from claw_r1.weights.errors import TransferFailed
from claw_r1.weights.sources import connection_to


@pytest.mark.parametrize("host", ["trainer.example:9000", "203.0.113.1", "127.0.0.1.example"])
def test_who_proves_itself_by_tls_takes_no_weights_in_clear(host: str) -> None:
    """An event may name any offer: one by http would have the fleet's secret before it has proved anything."""
    tls = ssl.create_default_context()
    with pytest.raises(TransferFailed, match="CLAW_WEIGHTS_TLS"):
        connection_to(f"http://{host}/weights", 1, tls)
    assert connection_to(f"https://{host}/weights", 1, tls).host == host.partition(":")[0]
    assert connection_to(f"http://{host}/weights", 1, None).host == host.partition(":")[0]


@pytest.mark.parametrize("host", ["127.0.0.1:9000", "localhost:9000", "[::1]:9000"])
def test_on_one_host_weights_may_pass_in_clear(host: str) -> None:
    """Nobody else is on that wire."""
    assert connection_to(f"http://{host}/weights", 1, ssl.create_default_context()).port == 9000
