"""The stop of the real server: what clients notice of it."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from claw_r1.claw.tls.authority import Authority
from claw_r1.gateway.http.server import GracefulServer
from claw_r1.runtime.files import write_secret
from claw_r1.runtime.tls.pem import PemFiles
from tests.gateway.engine import Reply, ScriptedEngine, completion
from tests.gateway.house import House
from tests.gateway.http.test_connection import WHOLE
from tests.gateway.processes import poll
from tests.patience import PATIENCE_S, until

LIVEZ = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"
CLOSE = b"\r\nconnection: close\r\n"


@contextlib.contextmanager
def serving(house: House, linger_s: float, grace_s: float) -> Iterator[GracefulServer]:
    """The gateway of a house that is not entered, behind the server of the product."""
    server = GracefulServer(house.config, linger_s, grace_s)
    thread = threading.Thread(target=server.run, args=([house.listener],), daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        yield server
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive(), "the server did not stop"


async def connect(house: House) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection of its own."""
    return await asyncio.open_connection(*house.url.removeprefix("http://").split(":"))


async def test_a_stop_answers_what_is_under_way_and_what_is_on_its_way(engine: ScriptedEngine) -> None:
    """A call begun before the stop is answered, and so is a request on an idle connection; both are told to close."""
    house = House()
    house.worker(engine.url)
    with serving(house, linger_s=1.0, grace_s=10.0) as server:
        may_end = threading.Event()
        engine.then(Reply(completion({}).body, moment=may_end))
        (calling, call), (idle, writer) = await connect(house), await connect(house)
        writer.write(LIVEZ)
        assert CLOSE not in await idle.readuntil(b"}")
        call.write(WHOLE)
        await poll(lambda: engine.requests)
        server.should_exit = True
        await poll(lambda: (b"connection", b"close") in server.server_state.default_headers)
        writer.write(LIVEZ)
        assert CLOSE in await idle.read(-1)
        may_end.set()
        reply = await calling.read(-1)
        assert reply.startswith(b"HTTP/1.1 200")
        assert CLOSE in reply
    assert len(house.captured) == 1


async def test_an_idle_connection_ends_with_the_linger_and_a_call_with_the_grace(engine: ScriptedEngine) -> None:
    """Whoever says nothing is closed without a word; a call that outlasts the grace is cut off."""
    house = House()
    house.worker(engine.url)
    with serving(house, linger_s=0.1, grace_s=1.0) as server:
        engine.then(Reply(hang=True))
        (calling, call), (idle, _) = await connect(house), await connect(house)
        call.write(WHOLE)
        await poll(lambda: engine.requests)
        server.should_exit = True
        assert await idle.read(-1) == b""
        assert not calling.at_eof()
        assert await asyncio.wait_for(calling.read(-1), 15) == b""
    assert not house.captured


async def test_the_last_connections_of_a_stop_speak_what_all_others_do(tmp_path: Path) -> None:
    """Whoever the kernel has let in when the stop begins is answered behind the gateway's certificate; who says nothing holds up nobody."""
    authority, own, trusted = Authority.new(), tmp_path / "server.pem", tmp_path / "ca.pem"
    trusted.write_text(authority.pem)
    write_secret(own, authority.issue("gateway", names=("localhost",)))
    house = House()
    house.config.load()
    house.config.ssl = PemFiles(None, own, None).context(server=True)
    server = GracefulServer(house.config, linger_s=3, grace_s=PATIENCE_S)  # the handshake has so long
    server.lifespan = house.config.lifespan_class(house.config)
    await server.startup(sockets=[])  # so that only the kernel takes connections
    house.listener.setblocking(False)
    address, trusting = house.listener.getsockname(), PemFiles(trusted, None, None).context()
    with contextlib.closing(socket.create_connection(address)):
        stopping = asyncio.ensure_future(server.shutdown([house.listener]))
        hasty = socket.create_connection(address)
        answers, writer = await asyncio.open_connection(sock=hasty, ssl=trusting, server_hostname="localhost")
        writer.write(LIVEZ)
        assert CLOSE in await answers.read(-1)
        await stopping
