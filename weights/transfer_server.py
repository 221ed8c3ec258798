"""The trainer's side: stage versions, and send their bytes to whoever asks.

    GET /weights?run_id=R&version=N&digest=D[&worker=ID]   200 the tensors' bytes in manifest order
                [&base=D]                                  200 the same, or with x-claw-weights: patch what makes them of
                                                           the version with that digest (weights/patch.py)
                                                           401 | 404 not staged | 503 enough are being sent to
    POST /carry?run_id=R&version=N&digest=D&worker=ID      200 a line of JSON when a group is gathered, "done" when every byte was sent to
         &transports=A,B&group=G                           all of it, an early end where a member is gone (weights/carry/carrying.py)
                                                           401 | 404 not staged | 501 not carried so
    GET /healthz                                           200

A worker asks for exactly the version that it saw published, so a version that was staged but never published
(the trainer died before its transaction) is loaded by nobody. Each send has a thread of its own, which holds the
snapshot, and a rate below which it is given up: a worker that dies or stands still costs nobody else.
"""

import json
import os
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from claw_r1.schemas.http import WEIGHTS_HEADER, family_of, url_host
from claw_r1.weights.carry.carrying import Carrying, Seat, is_gone
from claw_r1.weights.errors import NotStaged, TransferFailed
from claw_r1.weights.manifest import WeightsManifest
from claw_r1.weights.patch import patch_of
from claw_r1.weights.snapshot import WeightsSnapshot
from claw_r1.weights.sources import SECRET_VARIABLE, authorization, check_secret, is_authorized
from claw_r1.weights.staging import Staging, Stagings

PIECE_BYTES = 2 << 20
RATE_MIN = 1e6
"""Bytes per second below which a send is given up, `GRACE_S` apart."""
GRACE_S = 10.0
PATCHLESS = 16
"""The versions for which no patch is tried after one that was not worth it."""
PIECE_TIMEOUT_S = 10.0
"""The timeout of a request, and of each piece of the reply: a client that stands still must not keep a thread."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The outcome of one send; `error` is None when every byte was handed to the network."""

    worker_id: str
    run_id: str
    version: int
    bytes_total: int
    seconds: float
    error: str | None


class TransferServer:
    """Serves versions from construction until `close`. `on_sent` is called from sender threads."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        advertise_host: str | None = None,
        senders_max: int = 16,
        on_sent: Callable[[Sent], None] = lambda _: None,
        tls: ssl.SSLContext | None = None,
        carrying: Carrying | None = None,
    ) -> None:
        """carrying: by which versions are carried to those who ask for it; closed with this. tls: of a server, which
        then offers by https; one that trusts authorities sends a worker without a certificate of theirs nothing. The
        secret is read from the environment (`SECRET_VARIABLE`). Raises SecretMissing off loopback, OSError."""
        check_secret(host)
        self.authorization, self.tls = authorization(), tls
        self._advertise_host = advertise_host or host
        self.carrying = carrying
        self._stagings = Stagings()
        self._free = threading.Semaphore(senders_max)
        self._patching = ThreadPoolExecutor(1, thread_name_prefix="weights-patch")
        self._are_patches_wanted, self._patchless = False, Counter[str]()
        self._on_sent = on_sent
        self._server = _Listener((host, port), self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="transfer-server", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """The address in `WeightsPublished.offer_url`."""
        scheme = "https" if self.tls else "http"
        return f"{scheme}://{url_host(self._advertise_host)}:{self._server.server_address[1]}/weights"

    def stage(self, run_id: str, version: int, snapshot: WeightsSnapshot) -> None:
        """Workers can get this version from now on; call it before the version is published.

        Raises ManifestMismatch when the version is staged with other bytes. The two newest versions are held, and an
        older one for as long as a send of it runs.
        """
        before = self._stagings.newest(run_id)
        if before is None or before.version == version or not self._is_patch_worth(before):
            self._stagings.add(Staging(run_id, version, snapshot))
        else:
            patch = self._patching.submit(_patch, before.snapshot, snapshot)
            self._stagings.add(Staging(run_id, version, snapshot, before.snapshot.digest, patch))

    def settle(self, run_id: str, version: int) -> None:
        """The version is published: older ones are let go."""
        self._stagings.settle(run_id, version)

    def staged(self, run_id: str, version: int, digest: str) -> Staging:
        """Raises NotStaged, also for other bytes under this version."""
        return self._stagings.get(run_id, version, digest)

    def send(
        self, staging: Staging, worker_id: str, base: str, begin: Callable[[int, str], None], connection: socket.socket
    ) -> bool:
        """Send a version, after `begin` with the size and the kind of what follows; False when every sender is busy. base: the digest
        of a version that the worker has. Raises OSError."""
        if not self._free.acquire(blocking=False):
            return False
        began = time.monotonic()
        error: str | None = None
        total = 0
        try:
            if (patch := self._patch(staging, base) if base else None) is not None:
                flat, path, pieces = memoryview(patch), None, _cut(0, len(patch))
                total = len(patch)
            else:
                snapshot = staging.snapshot
                flat, path, pieces = snapshot.flat(), snapshot.file.path, _pieces(snapshot.manifest)
                total = snapshot.manifest.bytes_total
            begin(total, "whole" if patch is None else "patch")
            sent = 0
            with Path(path or os.devnull).open("rb", buffering=0) as file:
                for start, length in pieces:
                    if time.monotonic() - began > GRACE_S + sent / RATE_MIN:
                        raise TimeoutError(f"the worker takes less than {RATE_MIN / 1e6:g} MB/s")
                    if path is None or isinstance(connection, ssl.SSLSocket):  # whose sendfile copies by 8 KiB
                        connection.sendall(flat[start : start + length])
                    else:
                        connection.sendfile(file, start, length)
                    sent += length
        except OSError as failure:
            error = str(failure) or type(failure).__name__
            raise
        finally:
            self._free.release()
            seconds = time.monotonic() - began
            self._on_sent(Sent(worker_id, staging.run_id, staging.version, total, seconds, error))
        return True

    def _is_patch_worth(self, before: Staging) -> bool:
        """Returns whether to compare a version with this one: where two differ too much for a patch, the next ones will, too. One
        comparison at a time: each holds two versions in memory."""
        if before.patch is not None:
            if not before.patch.done():
                return False
            if before.patch.exception() is not None or before.patch.result() is None:
                self._patchless[before.run_id] = PATCHLESS
        self._patchless[before.run_id] = max(0, self._patchless[before.run_id] - 1)
        return self._are_patches_wanted and not self._patchless[before.run_id]

    def _patch(self, staging: Staging, base: str) -> bytes | None:
        """Returns a patch for who asks, and has them made from now on: nobody pays where all workers are on this host."""
        self._are_patches_wanted = True
        return staging.patch_from(base)

    def close(self) -> None:
        """Stop answering. Sends that run end with their connections, when the process ends."""
        self._server.shutdown()
        self._server.server_close()
        self._patching.shutdown(wait=False, cancel_futures=True)
        if self.carrying is not None:
            self.carrying.close()
        self._thread.join(timeout=1.0)


def _patch(before: WeightsSnapshot, after: WeightsSnapshot) -> bytes | None:
    return patch_of(before.flat(), after.flat()) if before.specs == after.specs else None


def _pieces(manifest: WeightsManifest) -> Iterator[tuple[int, int]]:
    """The places of the bytes in the flat file, in order, with their lengths: tensors between which no padding is go together."""
    begin = end = 0
    for tensor, start in manifest.offsets():
        if start != end:
            yield from _cut(begin, end)
            begin = start
        end = start + tensor.nbytes
    yield from _cut(begin, end)


def _cut(begin: int, end: int) -> Iterator[tuple[int, int]]:
    for start in range(begin, end, PIECE_BYTES):
        yield start, min(PIECE_BYTES, end - start)


class _Listener(ThreadingHTTPServer):
    def __init__(self, address: tuple[str, int], versions: TransferServer) -> None:
        self.address_family = family_of(address[0])
        super().__init__(address, _Handler)
        self.versions = versions

    def finish_request(self, request: Any, client_address: Any) -> None:  # Any: as socketserver has them
        """Answers a connection, in its own thread: whoever dawdles with its handshake holds up nobody else."""
        request.settimeout(PIECE_TIMEOUT_S)
        with suppress(ConnectionError, TimeoutError, ssl.SSLError):  # no worker of ours, or one that is gone
            tls = self.versions.tls
            with tls.wrap_socket(request, server_side=True) if tls else request as connection:
                super().finish_request(connection, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Listener
    wbufsize = 1 << 12
    disable_nagle_algorithm = True  # the last bytes leave at once

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(PIECE_TIMEOUT_S)

    def do_GET(self) -> None:
        if self.path == "/healthz":
            self._say(200, {"status": "ok"})
        else:
            self._answer("/weights", self._send)

    def do_POST(self) -> None:
        self._answer("/carry", self._carry)

    def _answer(self, path: str, answer: "Callable[[Staging, dict[str, str]], None]") -> None:
        """By what is staged, where the request asks for such a version and may."""
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path != path:
            self._say(404, {"error": "no such path"})
        elif not is_authorized(self.headers.get("authorization") or "", self.server.versions.authorization):
            self._say(401, {"error": f"another secret: {SECRET_VARIABLE} of trainer and worker must be the same"})
        elif not query.get("version", "").isdecimal() or not query.get("run_id") or not query.get("digest"):
            self._say(400, {"error": "needs ?run_id=R&version=N&digest=D"})
        else:
            try:
                staging = self.server.versions.staged(query["run_id"], int(query["version"]), query["digest"])
            except NotStaged as error:
                self._say(404, {"error": str(error)})
            else:
                answer(staging, query)

    def _carry(self, staging: Staging, query: dict[str, str]) -> None:
        carrying, transports = self.server.versions.carrying, query.get("transports", "").split(",")
        address = self.connection.getsockname()[0].removeprefix("::ffff:")  # IPv4's, come in by a socket of IPv6
        seat = Seat(query.get("worker", "?"), query.get("group", ""), address)
        try:
            if carrying is None:
                raise TransferFailed("nothing is carried here: offer_transports of the trainer names http alone")
            carrying.sit_down(staging, seat, transports)
        except TransferFailed as error:
            self._say(501, {"error": str(error)})
            return
        self.close_connection = True  # the end of the connection is the end of the group
        try:
            with suppress(OSError):
                self.send_response(200)
                self.end_headers()
                self.wfile.flush()
                for line in carrying.lines(seat, lambda: is_gone(self.connection, seat)):
                    self.wfile.write(line)
                    self.wfile.flush()
        finally:
            carrying.leave(seat)

    def _send(self, staging: Staging, query: dict[str, str]) -> None:
        try:
            worker, base = query.get("worker", "?"), query.get("base", "")
            if not self.server.versions.send(staging, worker, base, self._begin, self.connection):
                self._say(503, {"error": "every sender is busy"})
        except OSError:
            self.close_connection = True  # the worker is gone or too slow; `on_sent` has said so

    def _begin(self, length: int, kind: str) -> None:
        self.send_response(200)
        self.send_header(WEIGHTS_HEADER, kind)
        self.send_header("content-type", "application/octet-stream")
        self.send_header("content-length", str(length))
        self.end_headers()
        self.wfile.flush()  # the bytes go past it

    def _say(self, status: int, body: dict[str, str]) -> None:
        payload = json.dumps(body, separators=(",", ":")).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the overridden signature
        """Silent: `on_sent` tells how each send ended."""
