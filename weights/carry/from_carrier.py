"""The worker's side of carriers: a source of versions that fills the host's copy itself.

Invariant: bytes that a carrier wrote count by their digest, as all others do. No carrier writes to a copy that has its
name: it lets go of the file when it is done, and whatever goes wrong before ends it.
"""

import fcntl
import http.client
import json
import os
import socket
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from claw_r1.weights.carry.carrier_handle import Carrier, Spawn, bucket_s, readable
from claw_r1.weights.deadline import Deadline
from claw_r1.weights.errors import TransferFailed
from claw_r1.weights.host_copies import FillsFile, TensorBytes, is_at, locked
from claw_r1.weights.manifest import TensorShape, WeightsManifest
from claw_r1.weights.sources import ANSWER_CHARACTERS, authorization, connection_to, shut

FAILURES_MAX = 2
"""Failures in a row after which a worker asks for nothing to be carried, for `RESTS_S`."""
RESTS_S = 600.0
POLL_S = 0.1


class Carriage:
    """A worker's carrier from version to version, and the group that it is in. For one thread at a time."""

    def __init__(self, transports: Sequence[str], spawn: Spawn) -> None:
        self.transports = tuple(transports)
        self.carrier: Carrier | None = None
        self._group = ""
        self._spawn, self._lock = spawn, -1
        self._failures, self._rests_until_s = 0, 0.0

    def is_wanted(self, directory: Path) -> bool:
        """Carriers were not tried in vain of late, and this worker is the one of its host that has one. directory: of
        the host's copies."""
        return bool(self.transports) and time.monotonic() >= self._rests_until_s and self._owns(directory)

    def _owns(self, directory: Path) -> bool:
        if self._lock < 0:
            path = directory / "carrier"
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            if not locked(descriptor, fcntl.LOCK_EX) or not is_at(descriptor, path):
                os.close(descriptor)
                return False
            self._lock = descriptor
        return True

    @property
    def group(self) -> str:
        """The group that the carrier is in; empty where it is in none."""
        return self._group if self.carrier is not None and self.carrier.is_running else ""

    def begin(self) -> None:
        """A carrier loads while the group gathers, unless there is one."""
        if self.carrier is None or not self.carrier.is_running:
            self.end()
            with suppress(OSError):  # whoever joins tries again
                self.carrier, self._group = Carrier(self._spawn, self.transports[0]), ""

    def joined(self, seat: dict[str, Any], deadline: Deadline, watch: "_Watch") -> Carrier:
        """The carrier, in the group of this seat. Raises TransferFailed, DeadlineExceeded, OSError."""
        if self.carrier is not None and self._group == seat["group"]:
            return self.carrier
        if self._group or self.carrier is None or self.carrier.transport != seat["transport"]:
            self.end()
            self.carrier = Carrier(self._spawn, seat["transport"])
        carrier = self.carrier
        deadline.interrupted_by(carrier.end)
        carrier.expect("loaded", deadline, watch.look)
        own = _address_towards(seat["host"], seat["port"])
        carrier.order("join", seat["rank"], seat["world"], seat["host"], seat["port"], own)
        carrier.expect("joined", deadline, watch.look)
        self._group = seat["group"]
        return carrier

    def failed(self) -> None:
        """After some failures in a row nothing is asked of carriers for a while."""
        self._failures += 1
        if self._failures >= FAILURES_MAX:
            self._failures, self._rests_until_s = 0, time.monotonic() + RESTS_S

    def succeeded(self) -> None:
        """Ends a row of failures."""
        self._failures = 0

    def end(self) -> None:
        """Ends the carrier. Idempotent."""
        carrier, self.carrier, self._group = self.carrier, None, ""
        if carrier is not None:
            carrier.end()

    def close(self) -> None:
        """Another worker of the host may have a carrier from now on."""
        self.end()
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)


class FromCarrier(FillsFile):
    """POST <offer_url's host>/carry: a place in a group, by which a carrier fills the copy."""

    def __init__(
        self,
        carriage: Carriage,
        offer_url: str,
        run_id: str,
        version: int,
        *,
        worker_id: str,
        connect_timeout_s: float,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.name = "/".join(carriage.transports)
        """The transports that are tried; once there is a group, its own."""
        self.is_blamed = False
        """A failure is one of carriers: there was a group, or there never will be."""
        self.carriage, self._url = carriage, offer_url
        self._query = {"run_id": run_id, "version": str(version), "worker": worker_id, "group": carriage.group}
        self._connect_timeout_s, self._tls = connect_timeout_s, tls

    @contextmanager
    def __call__(self, manifest: WeightsManifest, deadline: Deadline) -> Iterator[TensorBytes]:
        """Raises TransferFailed or DeadlineExceeded."""
        timeout_s = min(self._connect_timeout_s, deadline.remaining_s("asking the trainer"))
        connection = connection_to(self._url, timeout_s, self._tls)
        try:
            connection.connect()
            connected = connection.sock  # which the connection forgets as soon as it has the reply's headers
            deadline.interrupted_by(partial(shut, connected))
            with self._asked(connection, connected, manifest, deadline) as reply:
                self.carriage.begin()
                watch = _Watch(connected, reply, self.descriptor)
                yield from self._carried(json.loads(watch.line(deadline)), manifest, deadline, watch)
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
            raise TransferFailed(f"{self._url}: {error!r}") from error
        finally:
            connection.close()

    def _asked(
        self,
        connection: http.client.HTTPConnection,
        connected: socket.socket,
        manifest: WeightsManifest,
        deadline: Deadline,
    ) -> http.client.HTTPResponse:
        """The reply, of which the first line comes when the group is gathered."""
        query = {**self._query, "digest": manifest.digest, "transports": ",".join(self.carriage.transports)}
        connection.request("POST", f"/carry?{urlencode(query)}", headers={"authorization": authorization()})
        reply = connection.getresponse()
        connected.settimeout(deadline.remaining_s("a group"))
        if reply.status != HTTPStatus.OK:
            self.is_blamed = reply.status == HTTPStatus.NOT_IMPLEMENTED
            raise TransferFailed(f"{reply.status} {reply.read(ANSWER_CHARACTERS).decode(errors='replace')}")
        return reply

    def _carried(
        self, seat: dict[str, Any], manifest: WeightsManifest, deadline: Deadline, watch: "_Watch"
    ) -> Iterator[TensorBytes]:
        """The carrier writes to nothing any more when this has ended, whatever the reason."""
        self.is_blamed, self.name = True, str(seat["transport"])
        try:
            carrier = self.carriage.joined(seat, deadline, watch)
            deadline.interrupted_by(carrier.end)
            path = f"/proc/{os.getpid()}/fd/{self.descriptor}"
            carrier.order("carry", manifest.bytes_flat, int(seat["bucket"]), path)
            filled = Filled(carrier, manifest, deadline, watch, bucket_s(int(seat["bucket"])))
            yield filled
            filled.finish()
        except BaseException:
            self.carriage.end()
            raise


class _Watch:
    """The request that is open as long as the group is whole."""

    def __init__(self, connected: socket.socket, reply: http.client.HTTPResponse, descriptor: int) -> None:
        """descriptor: of the file that is filled."""
        self._connected, self._reply, self._descriptor = connected, reply, descriptor
        self._is_over = False

    def line(self, deadline: Deadline) -> bytes:
        """The next line. Raises TransferFailed when a member is gone, DeadlineExceeded."""
        while not self._is_readable(POLL_S):
            self.touch()
            deadline.remaining_s("a group")
        line = self._reply.readline()
        if not line:
            raise TransferFailed("a member of the group is gone")
        return line

    def look(self) -> None:
        """Raises TransferFailed when a member is gone. The line that all is sent ends the watch."""
        self.touch()
        if not self._is_over and self._is_readable(0):
            if not self._reply.readline():
                raise TransferFailed("a member of the group is gone")
            self._is_over = True

    def touch(self) -> None:
        """Tell the other workers of this host that their copy gets on, also before its first bucket."""
        os.utime(self._descriptor)

    def leave(self) -> None:
        """Tell the trainer that this worker has all: its group need not end with it."""
        with suppress(OSError):
            self._connected.sendall(b"\n")

    def _is_readable(self, timeout_s: float) -> bool:
        """Returns whether there is a line, or the end of all."""
        return self._has_read() or readable(self._connected, timeout_s)

    def _has_read(self) -> bool:
        """Returns whether the reply's buffer holds what came with its headers."""
        before_s = self._connected.gettimeout()
        self._connected.settimeout(0)
        try:
            return bool(self._reply.fp.peek(1))
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        finally:
            self._connected.settimeout(before_s)


class Filled:
    """The bytes of a copy (`claw_r1.weights.host_copies.TensorBytes`) that a carrier writes, as far as it is."""

    def __init__(
        self, carrier: Carrier, manifest: WeightsManifest, deadline: Deadline, watch: _Watch, each_s: float
    ) -> None:
        """each_s: the longest time from one bucket to the next."""
        self._carrier, self._deadline, self._watch, self._each_s = carrier, deadline, watch, each_s
        self._begins: Mapping[TensorShape, int] = dict(manifest.offsets())
        self._there, self._is_done = 0, False

    def readinto(self, tensor: TensorShape, offset: int, piece: memoryview) -> None:
        """Returns when the piece, which is of the file itself, has its bytes."""
        while self._there < self._begins[tensor] + offset + len(piece):
            self._hear()

    def finish(self) -> None:
        """Returns when the carrier has let go of the file."""
        while not self._is_done:
            self._hear()
        self._watch.leave()

    def _hear(self) -> None:
        limit = Deadline(min(self._each_s, self._deadline.remaining_s("a bucket"))) if self._there else self._deadline
        word, *numbers = self._carrier.hear(limit, self._watch.look)
        if word == "at":
            self._there = int(numbers[0])
        elif word == "done":
            self._is_done = True
        else:
            raise TransferFailed(f"the carrier says {word!r}")


def _address_towards(host: str, port: int) -> str:
    """Returns the address of this host by which that one is reached. Raises OSError."""
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])
