"""The doors of `bench.gateway`: an upstream, a proxy before it and gateways, each a process of its own, and loads on them."""

import contextlib
import json
import resource
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.processes import Measured, broker, gateway, listening, topics_on
from claw_r1.claw.local.kafka.node import LocalBroker
from claw_r1.claw.tls.tls_dir import TlsDir
from claw_r1.schemas.api_keys import new_key

KEY, ENTRY = new_key("operator")
ASK = {"model": "bench", "messages": [{"role": "user", "content": "x" * 1900}], "temperature": 1.0}
PROTOCOLS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("chat/completions", ASK),
    "completions": ("completions", {"model": "bench", "prompt": "x" * 1900, "temperature": 1.0}),
    "responses": ("responses", {"model": "bench", "input": ASK["messages"], "temperature": 1.0}),
    "messages": ("messages", {**ASK, "max_tokens": 512}),
}
"""The route, and a request of one size."""
Result = dict[str, Any]  # JSON of bench.http_load
LOG_FIELDS = "CLAW_LOG_"


@dataclass(frozen=True)
class Door:
    """A process that answers calls."""

    port: int
    process: Measured
    authority: str = ""
    """The file of whoever signed its certificate; empty: http."""

    def load(self, connections: int, calls: int, protocol: str = "chat", ramp_s: float = 0.0, **extra: Any) -> Result:
        """Calls from a process of their own. extra: more of the body. Raises RuntimeError when one fails."""
        route, body = PROTOCOLS[protocol]
        ask = {
            "port": self.port,
            "connections": connections,
            "calls": calls,
            "ramp_s": ramp_s,
            "authority": self.authority,
            "body": {**body, **extra},
            "route": route,
            "key": KEY,
            "name": uuid.uuid4().hex[:8],
        }
        done = subprocess.run(
            [sys.executable, "-m", "bench.http_load", json.dumps(ask)], stdout=subprocess.PIPE, check=True
        )
        result: Result = json.loads(done.stdout)
        if result["errors"]:
            raise RuntimeError(f"calls failed: {result['errors']}")
        return result

    def cpu_ms(self, connections: int, calls: int, **how: Any) -> float:
        """CPU milliseconds of the process for each call of a load."""
        before_s = self.process.cpu_s()
        done: int = self.load(connections, calls, **how)["done"]
        return 1000 * (self.process.cpu_s() - before_s) / done


@contextlib.contextmanager
def ground(*names: str, **settings: str) -> Iterator[dict[str, Door]]:
    """Name -> door, of the `upstream` and of these: the `floor`, a `plain` gateway, one `traced` (it tells the upstream, which
    takes it, of each call), one `secured` (by https, on a Kafka by TLS and password). settings: of the gateways."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # thousands of sockets, here and in what is started here
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        upstream = Door(*stack.enter_context(listening("bench.scripted_upstream", folder)))
        doors = {"upstream": upstream}
        bootstrap = stack.enter_context(broker()).bootstrap
        for name in names:
            if name == "floor":
                proxy = listening("bench.gateway.byte_proxy", folder, str(upstream.port))
                doors[name] = Door(*stack.enter_context(proxy))
                continue
            more, authority, servers = {"CLAW_GATEWAY_API_KEYS": ENTRY, **settings}, "", bootstrap
            if name == "traced":
                more["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{upstream.port}"
            if name == "secured":
                tls = TlsDir(folder / "tls").prepared()
                servers = stack.enter_context(LocalBroker(folder / "secured", tls=tls)).bootstrap
                more |= {**tls.kafka(), **tls.doors()}
                authority = str(tls.authority)
            fields = {key.removeprefix(LOG_FIELDS).lower(): more[key] for key in more if key.startswith(LOG_FIELDS)}
            started = gateway(topics_on(servers, **fields), upstream.port, folder, **more)
            doors[name] = Door(*stack.enter_context(started), authority)
        for door in doors.values():
            door.load(32, 300)
        yield doors
