"""The gateway as a process: the log, its followers and the HTTP server, started and stopped in order.

Invariant: after SIGTERM or SIGINT no new connection is taken, calls in flight end (within `shutdown_grace_s`), the
producer is flushed, and the process exits 0. A follower that breaks ends the process with 1, to be started again.
"""

import socket
import threading
from collections.abc import Callable, Sequence
from types import FrameType

import structlog
import uvicorn

from eventlog.admin import check_catalogue
from eventlog.follower import Follower
from eventlog.kafka import KafkaLog
from eventlog.records import Record
from eventlog.settings import LogSettings
from gateway.admission import AdmissionView
from gateway.app import Collaborators, create_app
from gateway.settings import GatewaySettings
from gateway.workers import Server, WorkerTable
from schemas.topics import BATCHES, GROUPS, WEIGHTS, WORKERS, Topic

BACKLOG = 4096
KEEP_ALIVE_S = 75  # above what clients keep idle connections for, so that they, not we, close first
CATCH_UP_TIMEOUT_S = 60.0
FLUSH_TIMEOUT_S = 10.0
log = structlog.get_logger()


class PortInUse(Exception):
    """The address cannot be bound."""


class GracefulServer(uvicorn.Server):
    """uvicorn, without raising the signal that ended it once more: a stop that was asked for is a success."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002  # uvicorn gives both
        """First signal: drain. Second: leave at once."""
        self.force_exit = self.should_exit
        self.should_exit = True


class Followers:
    """What the gateway reads from the log, each topic set in a thread of its own."""

    def __init__(self, kafka: KafkaLog, workers: WorkerTable, admission: AdmissionView) -> None:
        self._kafka = kafka
        self._wanted: list[tuple[Sequence[Topic], Callable[[Record], None]]] = [
            ([WORKERS], workers.apply),
            ([GROUPS, BATCHES, WEIGHTS], admission.apply),
        ]
        self._running: list[Follower] = []
        self._caught_up = threading.Event()

    def start(self, on_error: Callable[[BaseException], None]) -> None:
        """Raises BrokerUnreachable, TopicMissing."""
        for topics, apply in self._wanted:
            follower = Follower(self._kafka.reader(topics), apply, on_error)
            self._running.append(follower)
            follower.start()
        for follower in self._running:
            follower.wait_caught_up(CATCH_UP_TIMEOUT_S)
        self._caught_up.set()

    def not_ready(self) -> str | None:
        """Why readers are not up to date, or None."""
        if any(follower.error for follower in self._running):
            return "follower_ended"
        return None if self._caught_up.is_set() else "catching_up"

    @property
    def broken(self) -> bool:
        """Whether one of them ended by itself."""
        return any(follower.error for follower in self._running)

    def stop(self) -> None:
        """Ends the threads."""
        for follower in self._running:
            follower.stop()


def serve(settings: GatewaySettings, log_settings: LogSettings) -> int:
    """Run until asked to stop; returns the exit code. Raises PortInUse, eventlog.errors.LogError at the start."""
    listener = bind(settings.host, settings.port)
    check_catalogue(log_settings)
    kafka = KafkaLog(log_settings)
    fixed = [Server(url=url) for url in settings.upstreams]
    workers, admission = WorkerTable(settings.worker_ttl_s, fixed), AdmissionView()
    followers = Followers(kafka, workers, admission)
    producer = kafka.producer()
    given = Collaborators(
        settings=settings, log=producer, workers=workers, admission=admission, not_ready=followers.not_ready
    )
    server = _server(given)

    def on_error(_: BaseException) -> None:
        server.should_exit = True

    try:
        followers.start(on_error)
        host, port = listener.getsockname()[:2]
        log.info("gateway_listening", url=f"http://{host}:{port}", instance=settings.instance)
        server.run(sockets=[listener])
        return 1 if followers.broken else 0
    finally:
        followers.stop()
        producer.close(FLUSH_TIMEOUT_S)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises PortInUse."""
    try:
        return socket.create_server((host, port), backlog=BACKLOG, family=_family(host))
    except OSError as busy:
        raise PortInUse(f"cannot listen on {host}:{port}: {busy.strerror}; choose another --port") from busy


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _server(given: Collaborators) -> GracefulServer:
    config = uvicorn.Config(
        create_app(given),
        loop="uvloop",
        http="httptools",
        backlog=BACKLOG,
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=given.settings.shutdown_grace_s,
    )
    return GracefulServer(config)
