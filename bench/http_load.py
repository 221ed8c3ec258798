"""The load: a fixed number of connections, each one call after the other. Prints one JSON object, its own CPU included.

`python -m bench.http_load '{"port": 8000, "connections": 32, "calls": 1000, "body": {…}, "key": "…"}'`. Each eight calls
of a connection are one trajectory.
"""

import asyncio
import json
import re
import ssl
import sys
import time
from dataclasses import dataclass, field
from typing import Any, cast

import uvloop

CALLS_PER_TRAJECTORY = 8
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


@dataclass
class Load:
    """The work of a load, and its measurements. Times in seconds."""

    port: int
    connections: int
    calls: int
    body: dict[str, Any]
    host: str = "127.0.0.1"
    name: str = "t"
    key: str = ""
    route: str = "chat/completions"
    authority: str = ""
    """File of the authority whose certificate the server shows; empty: http."""
    ramp_s: float = 0.0
    """Connections start spread over this: agents do not march in step."""
    left: int = 0
    active: int = 0
    total_s: list[float] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)


class Client(asyncio.Protocol):
    """One connection."""

    def __init__(self, load: Load, number: int, over: asyncio.Event) -> None:
        self._load, self._number, self._over, self._made = load, number, over, 0
        self._body = json.dumps(load.body).encode()
        self._sent_s = self._first_s = 0.0
        self._head_done, self._early, self._tail, self._got = False, b"", b"", 0
        self._length: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._load.active += 1
        self._next()

    def connection_lost(self, _error: Exception | None) -> None:
        if self._sent_s:
            self._note("closed")
            self._end()

    def data_received(self, data: bytes) -> None:
        self._tail = (self._tail + data)[-5:] if self._head_done else data
        if not self._head_done:
            self._early += data
            head, end, rest = self._early.partition(b"\r\n\r\n")
            if not end:
                return
            self._head_done, self._status = True, head[9:12]
            length = LENGTH.search(head)
            self._length = int(length[1]) if length else None
            self._tail, data = rest[-5:], rest
        if data and not self._first_s:
            self._first_s = time.perf_counter() - self._sent_s
        self._got += len(data)
        if self._got >= self._length if self._length is not None else self._tail == b"0\r\n\r\n":
            self._finish()

    def _next(self) -> None:
        if not self._load.left:
            self._end()
            return
        self._load.left -= 1
        self._head_done, self._early, self._tail, self._got, self._first_s = False, b"", b"", 0, 0.0
        name = f"{self._load.name}-{self._number}-{self._made // CALLS_PER_TRAJECTORY}"
        self._made += 1
        key = f"x-api-key: {self._load.key}\r\n" if self._load.key else ""
        head = (
            f"POST /{name}/{name}/v1/{self._load.route} HTTP/1.1\r\nhost: bench\r\n{key}"
            f"content-type: application/json\r\ncontent-length: {len(self._body)}\r\n\r\n"
        )
        self._sent_s = time.perf_counter()
        self._transport.write(head.encode() + self._body)

    def _finish(self) -> None:
        if self._status == b"200":
            self._load.total_s.append(time.perf_counter() - self._sent_s)
            self._load.first_s.append(self._first_s)
        else:
            self._note(self._status.decode())
        self._next()

    def _note(self, what: str) -> None:
        self._load.errors[what] = self._load.errors.get(what, 0) + 1

    def _end(self) -> None:
        self._sent_s = 0.0
        self._load.active -= 1
        self._transport.close()
        if not self._load.active:
            self._over.set()


async def run(load: Load) -> dict[str, Any]:
    """Do all calls. Raises TimeoutError after ten minutes."""
    load.left, over = load.calls, asyncio.Event()
    loop = asyncio.get_running_loop()
    tls = {"ssl": ssl.create_default_context(cafile=load.authority)} if load.authority else {}
    cpu_s, started_s = time.process_time(), time.perf_counter()

    async def start(number: int) -> None:
        await asyncio.sleep(load.ramp_s * number / load.connections)
        await loop.create_connection(lambda: Client(load, number, over), load.host, load.port, **tls)

    await asyncio.gather(*(start(number) for number in range(load.connections)))
    await asyncio.wait_for(over.wait(), 600)
    wall_s = time.perf_counter() - started_s
    return {
        "wall_s": wall_s,
        "done": len(load.total_s),
        "errors": load.errors,
        "rps": len(load.total_s) / wall_s,
        "total_ms": [1000 * each for each in load.total_s],
        "first_ms": [1000 * each for each in load.first_s],
        "load_cpu_s": time.process_time() - cpu_s,
    }


if __name__ == "__main__":
    json.dump(uvloop.run(run(Load(**json.loads(sys.argv[1])))), sys.stdout)
