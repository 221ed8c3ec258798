"""Where a worker's vLLM is reached."""

import pytest

from claw_r1.rollout.process.preflight import check_port
from claw_r1.rollout.process.server import VllmServer, free_port
from tests.ipv6 import needs_ipv6
from tests.rollout.scripted import settings


@pytest.mark.parametrize(
    ("host", "advertise", "local", "url"),
    [
        ("127.0.0.1", None, "http://127.0.0.1:8100", "http://127.0.0.1:8100"),
        ("0.0.0.0", "gpu1.lan", "http://0.0.0.0:8100", "http://gpu1.lan:8100"),
        ("::", "fd00::7", "http://[::]:8100", "http://[fd00::7]:8100"),
    ],
)
def test_an_address_of_ipv6_has_its_brackets(host: str, advertise: str | None, local: str, url: str) -> None:
    """A pod's own address is advertised as the kernel writes it."""
    server = VllmServer(settings(host=host, advertise_host=advertise, port=8100))
    assert (server.local_url, server.url) == (local, url)


@needs_ipv6
def test_ports_of_ipv6_are_found_and_tried() -> None:
    check_port("::1", free_port("::1"))
