"""The worker's side of carriers: a source of versions that fills the host's copy itself.

Invariant: bytes that a carrier wrote count by their digest, as all others do. No carrier writes to a copy that has its name: it lets go of the file
when it is done, and whatever goes wrong before ends it.
"""

import http.client
import json
import os
import select
import socket
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any
from urllib.parse import urlencode

from claw_r1.weights.carry.carrier_process import Carrier, Spawn
from claw_r1.weights.deadline import Deadline
from claw_r1.weights.errors import TransferFailed
from claw_r1.weights.host_copies import FillsFile, TensorBytes
from claw_r1.weights.manifest import TensorShape, WeightsManifest
from claw_r1.weights.sources import ANSWER_CHARACTERS, authorization, connection_to, shut

FAILURES_MAX = 2
"""Failures in a row after which a worker asks for nothing to be carried, for `RESTS_S`."""
RESTS_S = 600.0
FAREWELL_S = 5.0
"""How long a worker that has all bytes waits to hear that the others have, too: its group stands then."""


class Carriage:
    """A worker's carrier from version to version, and the group that it is in. For one thread at a time."""

    def __init__(self, transports: Sequence[str], spawn: Spawn) -> None:
        self.transports = tuple(transports)
        self.carrier: Carrier | None = None
        self._group = ""
        self._spawn = spawn
        self._failures, self._rests_until_s = 0, 0.0

    @property
    def is_wanted(self) -> bool:
        """Carriers were not tried in vain of late."""
        return bool(self.transports) and time.monotonic() >= self._rests_until_s

    @property
    def group(self) -> str:
        """The group that the carrier is in; empty where it is in none."""
        return self._group if self.carrier is not None and self.carrier.is_running else ""

    def joined(self, seat: dict[str, Any], deadline: Deadline, watch: "_Watch") -> Carrier:
        """The carrier, in the group of this seat. Raises TransferFailed, DeadlineExceeded, OSError."""
        if self.carrier is not None and self._group == seat["group"]:
            return self.carrier
        self.end()
        self.carrier = carrier = Carrier(self._spawn, seat["transport"])
        deadline.interrupted_by(carrier.end)
        carrier.expect("loaded", deadline, watch.look)
        own = _address_towards(seat["host"], seat["port"])
        carrier.order("join", seat["rank"], seat["world"], seat["host"], seat["port"], own)
        carrier.expect("joined", deadline, watch.look)
        self._group = seat["group"]
        return carrier

    def failed(self) -> None:
        """The carrier is of no more use, and after some failures none is."""
        self.end()
        self._failures += 1
        if self._failures >= FAILURES_MAX:
            self._failures, self._rests_until_s = 0, time.monotonic() + RESTS_S

    def succeeded(self) -> None:
        """Ends a row of failures."""
        self._failures = 0

    def end(self) -> None:
        """Idempotent."""
        carrier, self.carrier, self._group = self.carrier, None, ""
        if carrier is not None:
            carrier.end()


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
        self._carriage, self._url = carriage, offer_url
        self._query = {"run_id": run_id, "version": str(version), "worker": worker_id, "group": carriage.group}
        self._connect_timeout_s, self._tls = connect_timeout_s, tls

    @property
    def name(self) -> str:
        """The transport, as reports name it."""
        return "/".join(self._carriage.transports)

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
                seat = json.loads(reply.readline())
                watch = _Watch(connected, reply)
                carrier = self._carriage.joined(seat, deadline, watch)
                deadline.interrupted_by(carrier.end)
                path = f"/proc/{os.getpid()}/fd/{self.descriptor}"
                carrier.order("carry", manifest.bytes_flat, int(seat["bucket"]), path)
                filled = Filled(carrier, self.descriptor, manifest, deadline, watch)
                yield filled
                if not filled.finished():
                    self._carriage.end()
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
        query = {**self._query, "digest": manifest.digest, "transports": ",".join(self._carriage.transports)}
        connection.request("POST", f"/carry?{urlencode(query)}", headers={"authorization": authorization()})
        connected.settimeout(deadline.remaining_s("a group"))
        reply = connection.getresponse()
        if reply.status != 200:
            raise TransferFailed(f"{reply.status} {reply.read(ANSWER_CHARACTERS).decode(errors='replace')}")
        return reply


class _Watch:
    """The request that is open as long as the group is whole."""

    def __init__(self, connected: socket.socket, reply: http.client.HTTPResponse) -> None:
        self.is_over = False
        """Every byte was sent to everybody."""
        self._connected, self._reply = connected, reply

    def look(self, timeout_s: float = 0.0) -> None:
        """Raises TransferFailed when a member is gone, OSError after the time."""
        poll = select.poll()
        poll.register(self._connected, select.POLLIN)
        if not self.is_over and poll.poll(timeout_s * 1000):
            if not self._reply.readline():
                raise TransferFailed("a member of the group is gone")
            self.is_over = True


class Filled:
    """The bytes of a copy (`claw_r1.weights.host_copies.TensorBytes`) that a carrier writes, as far as it is."""

    def __init__(
        self, carrier: Carrier, descriptor: int, manifest: WeightsManifest, deadline: Deadline, watch: _Watch
    ) -> None:
        self._carrier, self._descriptor, self._deadline, self._watch = carrier, descriptor, deadline, watch
        self._begins: Mapping[TensorShape, int] = dict(manifest.offsets())
        self._there, self._is_done = 0, False

    def readinto(self, tensor: TensorShape, offset: int, piece: memoryview) -> None:
        """Returns when the piece, which is of the file itself, has its bytes."""
        while self._there < self._begins[tensor] + offset + len(piece):
            self._hear()

    def finished(self) -> bool:
        """Waits until the carrier has let go of the file; returns whether everybody else has all bytes, too."""
        while not self._is_done:
            self._hear()
        with suppress(TransferFailed, OSError):
            self._watch.look(FAREWELL_S)
        return self._watch.is_over

    def _hear(self) -> None:
        word, *numbers = self._carrier.hear(self._deadline, self._watch.look)
        if word == "at":
            self._there = int(numbers[0])
            os.utime(
                self._descriptor
            )  # the mapping's writes leave no trace for whoever looks whether this copy gets on
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
