"""The trainer's side: stage versions, answer `GET /offer`, and send to the worker that asked.

    GET /offer?worker=ID[&run_id=R][&version=N]  200 a Transfer | 404 not staged | 503 every sender is busy
    GET /healthz                                 200

A worker asks for exactly the version that it saw published, so a version that was staged but never published
(the trainer died before its transaction) is loaded by nobody.
"""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import torch

from weights.errors import SendersBusy, TransferRefused
from weights.rendezvous import Transfer
from weights.sender import Senders, Sent
from weights.snapshot import WeightsSnapshot
from weights.staging import Staging, Stagings

REQUEST_TIMEOUT_S = 5.0
CLOSE_WAIT_S = 1.0


class TransferServer:
    """Serves versions from construction until `close`. `on_sent` is called from sender threads."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        advertise_host: str | None = None,
        device: str = "cpu",
        timeout_s: float = 30.0,
        senders_max: int = 16,
        on_sent: Callable[[Sent], None] = lambda _: None,
    ) -> None:
        self._advertise_host = advertise_host or host
        self._stagings = Stagings()
        self._senders = Senders(
            bind_host=host,
            advertise_host=self._advertise_host,
            device=torch.device(device),
            timeout_s=timeout_s,
            senders_max=senders_max,
            on_sent=on_sent,
        )
        self._server = ThreadingHTTPServer((host, port), _handler(self))
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="transfer-server", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """What `WeightsPublished.offer_url` carries."""
        return f"http://{self._advertise_host}:{self._server.server_address[1]}/offer"

    def stage(self, run_id: str, version: int, snapshot: WeightsSnapshot) -> None:
        """Workers can get this version from now on; call it before the version is published.

        Raises ManifestMismatch when the version is staged with other bytes. The two newest versions are held, and an
        older one for as long as a send of it runs.
        """
        self._stagings.add(Staging(run_id, version, snapshot))

    def start_transfer(self, worker_id: str, run_id: str | None = None, version: int | None = None) -> Transfer:
        """Start a sender for one worker. Raises TransferRefused."""
        staging = self._stagings.get(run_id, version)
        rendezvous = self._senders.start(staging, worker_id)
        return Transfer(staging.run_id, staging.version, staging.snapshot.manifest, rendezvous)

    def close(self) -> None:
        """Stop answering. Running sends end: those that wait for their worker at once, others have a second."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=1.0)
        self._senders.close(CLOSE_WAIT_S)


def _handler(server: TransferServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_TIMEOUT_S  # a client that never finishes its request must not keep a thread

        def do_GET(self) -> None:
            status, body = _answer(server, self.path)
            payload = json.dumps(body, separators=(",", ":")).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the overridden signature
            """Silent: `on_sent` tells how each send ended."""

    return Handler


def _answer(server: TransferServer, target: str) -> tuple[int, dict[str, object]]:
    parts = urlsplit(target)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    if parts.path == "/healthz":
        return 200, {"status": "ok"}
    if parts.path != "/offer":
        return 404, {"error": "no such path"}
    version = query.get("version")
    if "worker" not in query or (version is not None and not version.isdecimal()):
        return 400, {"error": "needs ?worker=ID, and version must be a whole number"}
    try:
        transfer = server.start_transfer(
            query["worker"],
            query.get("run_id"),
            None if version is None else int(version),
        )
    except SendersBusy as refusal:
        return 503, {"error": str(refusal)}
    except TransferRefused as refusal:
        return 404, {"error": str(refusal)}
    return 200, transfer.to_json()
