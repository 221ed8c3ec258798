"""What the gateway relies on in uvicorn without being promised it (docs/adr/0009)."""

import asyncio
import inspect
import re
import tomllib
from collections.abc import AsyncIterator
from operator import attrgetter
from pathlib import Path

import pytest
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from claw_r1.gateway.http.connection import ClientConnection
from tests.gateway.processes import poll

ROOT = Path(__file__).parents[3]
NAMES = (
    "config.http_protocol_class",
    "config.timeout_keep_alive",
    "force_exit",
    "handle_exit",
    "lifespan.state",
    "server_state.connections",
    "server_state.default_headers",
    "server_state.tasks",
    "servers",
    "should_exit",
    "shutdown",
)
"""Of a `uvicorn.Server` that runs; gateway/http/server.py and connection.py use them, or are called under them."""
WHAT_TO_DO = "gateway/http relies on it: stay with the pinned uvicorn, or mend the gateway and docs/adr/0009"


@pytest.fixture
async def server() -> AsyncIterator[uvicorn.Server]:
    """uvicorn at work, with nothing of ours."""
    server = uvicorn.Server(uvicorn.Config(Starlette(), port=0, http="httptools", log_config=None))
    serving = asyncio.ensure_future(server.serve())
    await poll(lambda: server.started)
    yield server
    server.should_exit = True
    await serving


@pytest.mark.parametrize("name", NAMES)
async def test_uvicorn_has_the_names_that_we_rely_on(server: uvicorn.Server, name: str) -> None:
    """A release of uvicorn that lacks one of them is noticed here, by that name, and not by a connection that breaks."""
    try:
        attrgetter(name)(server)
    except AttributeError:
        pytest.fail(f"uvicorn {uvicorn.__version__} has no Server.{name}; {WHAT_TO_DO}")


def test_uvicorn_makes_and_stops_connections_as_ours_expect() -> None:
    """Its own protocol is made with the arguments that ours takes, and is stopped by `shutdown()`."""
    theirs, ours = (set(inspect.signature(each).parameters) for each in (HttpToolsProtocol, ClientConnection))
    assert theirs == ours, (
        f"uvicorn {uvicorn.__version__} makes connections with {theirs}, ours take {ours}; {WHAT_TO_DO}"
    )
    assert not inspect.signature(HttpToolsProtocol.shutdown).parameters.keys() - {"self"}, WHAT_TO_DO


def test_uvicorn_is_pinned_to_the_locked_release() -> None:
    """Names that nobody promised may go with any release, so one release is asked for: the one of the lock."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (pin,) = [entry for entry in extras["gateway"] if entry.startswith("uvicorn")]
    assert re.fullmatch(r"uvicorn==[\d.]+", pin), f"{pin} is not one release"
    assert f"\n{pin} " in (ROOT / "claw" / "install" / "locks" / "cpu.txt").read_text(), (
        f"{pin} is not the locked release"
    )
