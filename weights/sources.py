"""The sources of a version's bytes: a trainer's transfer server, or the directory of an export."""

import hmac
import http.client
import json
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlencode, urlsplit

from claw_r1.schemas.api_keys import is_loopback
from claw_r1.schemas.http import WEIGHTS_HEADER
from claw_r1.weights.deadline import Deadline
from claw_r1.weights.errors import ManifestMismatch, SecretMissing, TransferFailed
from claw_r1.weights.host_copies import TensorBytes
from claw_r1.weights.manifest import TensorShape, WeightsManifest
from claw_r1.weights.patch import patched

SECRET_VARIABLE = "CLAW_WEIGHTS_SECRET"  # noqa: S105  # a name, not a secret
LOOPBACK = ("127.0.0.1", "::1", "localhost")
HEADER_BYTES_MAX = 100 << 20
ANSWER_CHARACTERS = 200
"""The most characters of the trainer's reason for a refusal."""


def authorization(environment: "os._Environ[str] | dict[str, str]" = os.environ) -> str:
    """The header with which trainer and workers know each other; empty where no secret is set."""
    secret = environment.get(SECRET_VARIABLE, "").strip()  # a file of it often ends with a newline
    return f"Bearer {secret}" if secret else ""


def is_authorized(header: str, expected: str) -> bool:
    """Returns whether a request may have weights; with no secret set, every request may."""
    return hmac.compare_digest(header.encode(), expected.encode()) if expected else True


def check_secret(host: str) -> None:
    """Raises SecretMissing where weights would be served on this address to everybody."""
    if host not in LOOPBACK and not authorization():
        raise SecretMissing(f"weights are served on {host}: set {SECRET_VARIABLE}, the same here and for each worker")


class Base(NamedTuple):
    """A verified copy of another version that is in this host's memory: its digest, and the path by which it
    can be opened."""

    digest: str
    path: str


class FromTrainer:
    """GET <offer_url>?run_id=…&version=…&digest=…: the tensors' bytes in manifest order, nothing between them."""

    name = "trainer"

    def __init__(
        self,
        offer_url: str,
        run_id: str,
        version: int,
        *,
        worker_id: str,
        connect_timeout_s: float,
        tls: ssl.SSLContext | None = None,
        base: Base | None = None,
    ) -> None:
        """tls: for an offer by https; None trusts whom the system trusts, and shows no certificate. base: a version that is here
        already, from which a patch would do."""
        self.base, self.is_patched = base, False
        self._url = offer_url
        self._query = {"run_id": run_id, "version": str(version), "worker": worker_id}
        self._connect_timeout_s, self._tls = connect_timeout_s, tls

    @contextmanager
    def __call__(self, manifest: WeightsManifest, deadline: Deadline) -> Iterator[TensorBytes]:
        """Raises TransferFailed or DeadlineExceeded."""
        parts = urlsplit(self._url)
        connection = connection_to(
            self._url, min(self._connect_timeout_s, deadline.remaining_s("asking the trainer")), self._tls
        )
        base, self.is_patched = self.base, False
        query = {**self._query, "digest": manifest.digest, **({"base": base.digest} if base else {})}
        target = f"{parts.path}?{urlencode(query)}"
        try:
            connection.connect()
            connected = connection.sock  # which the connection forgets as soon as it has the reply's headers
            deadline.interrupted_by(partial(shut, connected))
            connection.request("GET", target, headers={"authorization": authorization()})
            reply = connection.getresponse()
            if reply.status != 200:
                raise TransferFailed(f"{reply.status} {reply.read(ANSWER_CHARACTERS).decode(errors='replace')}")
            if base is not None and reply.headers.get(WEIGHTS_HEADER) == "patch":
                self.is_patched = True
                yield from self._patched(base, manifest, _Reply(connected, reply, deadline), reply.length or 0)
                return
            if reply.length != manifest.bytes_total:
                raise TransferFailed(f"the trainer sends {reply.length} bytes, the manifest has {manifest.bytes_total}")
            yield _Reply(connected, reply, deadline)
        except (OSError, http.client.HTTPException) as error:
            raise TransferFailed(f"{self._url}: {error!r}") from error
        finally:
            connection.close()

    @staticmethod
    def _patched(base: Base, manifest: WeightsManifest, reply: "_Reply", length: int) -> Iterator[TensorBytes]:
        if length > manifest.bytes_total:
            raise TransferFailed(f"a patch of {length} bytes is longer than the version")
        body = bytearray(length)
        reply.read(memoryview(body), "the patch")
        with patched(Path(base.path), [body], manifest) as version:
            yield version


def connection_to(url: str, timeout_s: float, tls: ssl.SSLContext | None) -> http.client.HTTPConnection:
    """A connection to an offer, not yet made. Raises TransferFailed for another URL than http:// and https://, and for http://
    to another host where this end proves itself by TLS: who offers proves nothing there, and would get the secret."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise TransferFailed(f"{url} is no http:// or https:// URL")
    if parts.scheme == "http" and tls is not None and not is_loopback(parts.hostname):
        raise TransferFailed(
            f"{url} offers weights in clear, and CLAW_WEIGHTS_TLS_* is set here: set it at the trainer, too"
        )
    if parts.scheme == "http":
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)
    context = tls or ssl.create_default_context()
    return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout_s, context=context)


def shut(connected: socket.socket) -> None:
    """End whatever waits for this connection in another thread."""
    with suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)


class _Reply:
    def __init__(self, connected: socket.socket, reply: http.client.HTTPResponse, deadline: Deadline) -> None:
        self._socket, self._reply, self._deadline = connected, reply, deadline

    def readinto(self, tensor: TensorShape, offset: int, piece: memoryview) -> None:  # noqa: ARG002  # bytes come in order
        self.read(piece, tensor.name)

    def read(self, piece: memoryview, what: str) -> None:
        while piece:
            self._socket.settimeout(self._deadline.remaining_s(what))
            count = self._reply.readinto(piece)
            if not count:
                raise TransferFailed(f"the trainer ended in the middle of {what}")
            piece = piece[count:]


class FromDirectory:
    """The *.safetensors of a HF directory, named by a plain path or file://."""

    name = "checkpoint"

    def __init__(self, uri: str) -> None:
        self._uri = uri

    @contextmanager
    def __call__(self, manifest: WeightsManifest, deadline: Deadline) -> Iterator[TensorBytes]:
        """Raises ManifestMismatch for a directory that is not there or lacks a tensor."""
        directory = directory_of(self._uri)
        deadline.remaining_s("opening the checkpoint")
        try:
            with ExitStack() as opened:
                places: dict[str, _Place] = {}
                for path in sorted(directory.glob("*.safetensors")):
                    descriptor = os.open(path, os.O_RDONLY)
                    opened.callback(os.close, descriptor)
                    places |= _places(descriptor)
                for tensor in manifest.tensors:
                    if places.get(tensor.name, (0, 0, -1))[2] != tensor.nbytes:
                        raise ManifestMismatch(f"{directory} has no tensor {tensor.name} of {tensor.nbytes} bytes")
                yield _Files(places)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ManifestMismatch(f"{directory} cannot be read: {error}") from error


_Place = tuple[int, int, int]
"""A tensor in a file: descriptor, first byte, number of bytes."""


class _Files:
    def __init__(self, places: dict[str, _Place]) -> None:
        self._places = places

    def readinto(self, tensor: TensorShape, offset: int, piece: memoryview) -> None:
        descriptor, begin, _ = self._places[tensor.name]
        while piece:
            count = os.preadv(descriptor, [piece], begin + offset)
            if not count:
                raise ManifestMismatch(f"a file ends in the middle of {tensor.name}")
            piece, offset = piece[count:], offset + count


def _places(descriptor: int) -> dict[str, _Place]:
    """By tensor. The header of a file: https://github.com/safetensors/safetensors#format."""
    size = int.from_bytes(os.pread(descriptor, 8, 0), "little")
    if size > HEADER_BYTES_MAX:
        raise ValueError("a file is no safetensors file")
    header = json.loads(os.pread(descriptor, size, 8))
    header.pop("__metadata__", None)
    spans = {name: entry["data_offsets"] for name, entry in header.items()}
    return {name: (descriptor, 8 + size + begin, end - begin) for name, (begin, end) in spans.items()}


def directory_of(uri: str) -> Path:
    """The local directory that a checkpoint uri names. Raises ManifestMismatch otherwise."""
    parts = urlsplit(uri)
    if parts.scheme not in ("", "file"):
        raise ManifestMismatch(f"checkpoint {uri}: only local directories can be read")
    return Path(unquote(parts.path) if parts.scheme else uri)
