"""The metrics and probes of a process on a port of its own: `/metrics`, `/livez`, `/readyz`.

Invariant: nobody who asks can hold up the process: threads are few, and each wait ends.
"""

import json
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from operator import itemgetter
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Annotated, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import structlog
from prometheus_client import CollectorRegistry, make_wsgi_app
from pydantic import Field

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

log = structlog.get_logger()

LOOK_S = 0.2
ANSWER_S = 10.0
"""The longest wait for whoever asked to send more of the question, or to take more of the answer."""
ANSWERS_MAX = 32
"""Answers under way; a connection beyond them is closed at once."""
LAST_READ_S = 60.0
"""How long a process that is done stays, for whoever reads its metrics as often to see that it ended as planned."""

NotReady = Callable[[], str | None]
"""Returns why a process cannot do its work yet, or now; None: it can."""
Broken = Callable[[], str | None]
"""Returns why a process will never do its work again, so that only another start helps; None: nothing is broken."""
MetricsPort = Annotated[
    int | None,
    Field(
        ge=0,
        le=65_535,
        description="Port for /metrics, /livez and /readyz, without keys; 0: any free one. Not set: none.",
    ),
]
MetricsHost = Annotated[
    str,
    Field(description="Address of that port. Whoever reaches it reads counts, and neither keys nor conversations."),
]


class Watchers:
    """Reads of the metrics of this process, by whoever watches it."""

    def __init__(self) -> None:
        self._read_s: float | None = None

    def see(self) -> None:
        """The metrics were read."""
        self._read_s = time.monotonic()

    def wait_for_one(self, stop: threading.Event, timeout_s: float = LAST_READ_S) -> None:
        """Until the metrics are read once more, at most for `timeout_s`; not at all where nobody read them for so long."""
        now_s = begun_s = time.monotonic()
        while self._read_s is not None and now_s - timeout_s < self._read_s <= begun_s and now_s < begun_s + timeout_s:
            if stop.wait(LOOK_S):
                return
            now_s = time.monotonic()


class MetricsPortTaken(OSError):
    """Metrics cannot be served there."""


@contextmanager
def monitored(
    registry: CollectorRegistry,
    host: str,
    port: int | None,
    not_ready: NotReady = lambda: None,
    answer_s: float = ANSWER_S,
    broken: Broken = lambda: None,
) -> Iterator[Watchers]:
    """Serve metrics and probes, where a port is given. not_ready and broken must answer at once. Raises MetricsPortTaken."""
    watchers = Watchers()
    if port is None:
        yield watchers
        return
    try:
        server = MonitoringServer(host, port, application(registry, not_ready, watchers.see, broken), answer_s)
    except OSError as error:
        raise MetricsPortTaken(
            f"cannot serve metrics on {host}:{port}: {error.strerror or error}; choose another --metrics-port"
        ) from error
    with server:
        threading.Thread(target=server.serve_forever, name="monitoring", daemon=True).start()
        log.info("metrics_served", url=f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/metrics")
        try:
            yield watchers
        finally:
            server.shutdown()


def application(
    registry: CollectorRegistry,
    not_ready: NotReady,
    on_read: Callable[[], None] = lambda: None,
    broken: Broken = lambda: None,
) -> "WSGIApplication":
    """The three paths; all others are 404. on_read: called once metrics were put together."""
    metrics = make_wsgi_app(registry)

    def answer(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            exposition: Iterable[bytes] = metrics(environ, start_response)
            on_read()
            return exposition
        status, body = _probe(path, not_ready, broken)
        start_response(status, [("Content-Type", "application/json"), ("Cache-Control", "no-store")])
        return [json.dumps(body).encode()]

    return answer


def _probe(path: str, not_ready: NotReady, broken: Broken) -> tuple[str, dict[str, Any]]:  # Any: JSON values
    if path not in ("/livez", "/readyz"):
        return "404 Not Found", {"paths": ["/metrics", "/livez", "/readyz"]}
    reason = broken()
    if path == "/livez":
        status = {"status": "alive"} if reason is None else {"status": "broken", "reason": reason}
        return "503 Service Unavailable" if reason else "200 OK", status
    reason = reason or not_ready()
    return "503 Service Unavailable" if reason else "200 OK", {"ready": reason is None, "reason": reason}


class MonitoringServer(ThreadingMixIn, WSGIServer):
    """A thread per question, up to `ANSWERS_MAX`."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, host: str, port: int, app: "WSGIApplication", answer_s: float) -> None:
        """Raises OSError."""
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._answer_s = answer_s
        self._places = threading.BoundedSemaphore(ANSWERS_MAX)
        self._begun_s: dict[socket.socket, float] = {}
        super().__init__((host, port), _Question)
        self.set_app(app)

    def server_bind(self) -> None:
        """Without the library's question to the name service, which may take seconds."""
        socketserver.TCPServer.server_bind(self)
        host, port = self.server_address[:2]
        self.server_name, self.server_port = str(host), int(port)
        self.setup_environ()

    def get_request(self) -> tuple[socket.socket, Any]:  # Any: an address
        """The next connection, which from now on waits for nobody for longer than its time."""
        connection, address = super().get_request()
        connection.settimeout(self._answer_s)
        return connection, address

    def process_request(self, request: Any, client_address: Any) -> None:  # Any: as the library has them
        """In a thread, where one is free."""
        if not self._places.acquire(blocking=False):
            self._end_oldest()
            self.shutdown_request(request)
            return
        self._begun_s[request] = time.monotonic()
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started
            self._leave(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Gives the place back, whatever becomes of the question."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave(request)

    def _leave(self, request: socket.socket) -> None:
        self._begun_s.pop(request, None)
        self._places.release()

    def _end_oldest(self) -> None:
        """Ends the connection that asks longest, once it is over the time of a wait: byte by byte, one could go on for ever."""
        oldest, begun_s = min(self._begun_s.copy().items(), key=itemgetter(1), default=(None, 0.0))
        if oldest is not None and time.monotonic() - begun_s > self._answer_s:
            with suppress(OSError):  # it ended by itself
                oldest.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing: that somebody left, or did not read in time, is no news for the log of this process."""


class _Question(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # named so by the library
        """Questions are not logged."""
