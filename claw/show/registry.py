"""`claw registry`: the read-only schema registry alone, for Kafka tools where no gateway
runs. It needs no broker."""

import json
import socket

import uvicorn

from claw_r1.claw.errors import CannotRun
from claw_r1.gateway.control.registry import registry_app
from claw_r1.gateway.http.server import GracefulServer
from claw_r1.gateway.serve import PortInUse, bind
from claw_r1.runtime.tls.doors import DoorTls
from claw_r1.schemas.http import url_host
from claw_r1.schemas.registry import Registry
from claw_r1.schemas.topics import Catalogue


def run_registry(host: str, port: int, catalogue: Catalogue, tls: DoorTls) -> int:
    """Serve until a signal, then 0; prints the URL. Raises CannotRun."""
    running, listener = server(host, port, catalogue, tls)
    print(f"{tls.scheme}://{url_host(host)}:{listener.getsockname()[1]}", flush=True)
    running.run(sockets=[listener])
    return 0


def export_registry(catalogue: Catalogue) -> int:
    """Prints each version of each subject as one line of JSON, in the order in which a registry takes them: the body of
    `POST /subjects/SUBJECT/versions` with the subject beside it."""
    for version in Registry(catalogue).versions():
        print(json.dumps(version.as_json()))
    return 0


def server(host: str, port: int, catalogue: Catalogue, tls: DoorTls) -> tuple[uvicorn.Server, socket.socket]:
    """The server and the socket that it is to listen on. Raises CannotRun."""
    try:
        listener = bind(host, port)
    except PortInUse as taken:
        raise CannotRun(str(taken)) from taken
    app = registry_app(Registry(catalogue))
    config = uvicorn.Config(
        app,
        ws="none",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=1,
        ssl_context_factory=tls.context_factory,
    )
    return GracefulServer(config, linger_s=0, grace_s=0), listener
