"""The trainer's side of carriers: who asks for one version within a short while gets it by one collective.

Invariant: nothing here keeps the trainer's loop waiting, and a member that dies, stands still or talks nonsense costs its group this one version:
the others are told by the end of their requests, and ask for it by HTTP. A group stands from version to version, and is replaced, never
changed: when others ask than those that are in it, or one of them without it, a new carrier gathers them.
"""

import json
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from claw_r1.weights.carry.carrier_process import Carrier, Spawn
from claw_r1.weights.deadline import Deadline
from claw_r1.weights.errors import TransferFailed
from claw_r1.weights.manifest import bytes_flat
from claw_r1.weights.staging import Staging

GATHER_S = 0.3
"""How long others may come to the first who asks; less where everybody has asked who did for the version before."""
RATE_MIN = 20e6
"""Bytes per second below which a version is given up, `join_s` apart."""
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Carried:
    """The outcome of one collective; `error` is None when it was sent whole."""

    workers: tuple[str, ...]
    transport: str
    run_id: str
    version: int
    seconds: float
    error: str | None


@dataclass(eq=False)
class Seat:
    """The place of one worker in a gathering. group: the group that its carrier is in, or none."""

    worker: str
    group: str
    assignment: "Future[dict[str, Any]]" = field(default_factory=Future)
    """The group that it has to join, or to stay in, once everybody is there."""
    outcome: "Future[None]" = field(default_factory=Future)


@dataclass(eq=False)
class _Gathering:
    staging: Staging
    transport: str
    seats: list[Seat] = field(default_factory=list)


@dataclass(eq=False)
class _Group:
    name: str
    workers: frozenset[str]
    carrier: Carrier
    port: int

    def is_of(self, seats: Sequence[Seat]) -> bool:
        """Returns whether those who ask are those who are in this group already."""
        return self.workers == {seat.worker for seat in seats} and all(seat.group == self.name for seat in seats)


class Carrying:
    """Carries versions from construction until `close`. `on_carried` is called from its thread."""

    def __init__(
        self,
        transports: Sequence[str],
        host: str,
        spawn: Spawn,
        *,
        join_s: float = 60.0,
        bucket_bytes: int = 64 << 20,
        on_carried: Callable[[Carried], None] = lambda _: None,
    ) -> None:
        """host: the address by which workers reach this one, on which carriers' stores listen. join_s: until a group stands."""
        self.transports = tuple(transports)
        self._host, self._spawn, self._join_s, self._on_carried = host, spawn, join_s, on_carried
        self._bucket_bytes = bucket_bytes
        self._version: tuple[str, int] | None = None
        self._asking: set[str] = set()
        """The workers that asked for this version."""
        self._expected: set[str] = set()
        """The workers that asked for the one before."""
        self._gatherings: dict[tuple[str, str], _Gathering] = {}
        self._group: _Group | None = None
        self._lock = threading.Condition()
        """Notified when somebody has sat down."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="weights-carrying")

    def sit_down(self, staging: Staging, worker: str, transports: Sequence[str], group: str) -> Seat:
        """A seat in the gathering of who wants this version now. Raises TransferFailed where no transport is common, or the version
        lies in no file."""
        transport = next((name for name in self.transports if name in transports), None)
        if transport is None or staging.snapshot.file.path is None:
            raise TransferFailed(f"carried by {' or '.join(self.transports) or 'nothing'} only")
        seat, place = Seat(worker, group), (transport, staging.snapshot.manifest.digest)
        version = staging.run_id, staging.version
        with self._lock:
            if version != self._version:
                self._version, self._expected, self._asking = version, self._asking, set()
            self._asking.add(worker)
            gathering = self._gatherings.get(place)
            if gathering is None:
                gathering = self._gatherings[place] = _Gathering(staging, transport)
                self._thread.submit(self._carry, place, gathering)
            gathering.seats.append(seat)
            self._lock.notify_all()
        return seat

    def lines(self, seat: Seat, is_gone: Callable[[], bool]) -> Iterator[bytes]:
        """Yields to a worker its place in the group, and `done` when every byte was sent. Ends early where the group did.
        is_gone: whether the worker left."""
        for awaited in (seat.assignment, seat.outcome):
            while not _is_done(awaited):
                if is_gone():
                    self._leave(seat)
                    return
            if awaited.exception() is not None:
                return
            yield (json.dumps(awaited.result() or "done") + "\n").encode()

    def close(self) -> None:
        """Ends the group; who is under way is told by the end of its request."""
        with self._lock:
            group, self._group = self._group, None
        self._thread.shutdown(wait=False, cancel_futures=True)
        if group is not None:
            group.carrier.end()

    def _leave(self, seat: Seat) -> None:
        with self._lock:
            gatherings = [one for one in self._gatherings.values() if seat in one.seats]
            for gathering in gatherings:  # not begun: the others have their version without it
                gathering.seats.remove(seat)
            group = self._group
        if not gatherings and group is not None and not seat.outcome.done() and seat.worker in group.workers:
            group.carrier.end()

    def _carry(self, place: tuple[str, str], gathering: _Gathering) -> None:
        began = time.monotonic()
        with self._lock:
            self._lock.wait_for(lambda: self._expected and self._expected <= self._asking, GATHER_S)
            del self._gatherings[place]
            seats = list(gathering.seats)
        error: str | None = None
        try:
            if seats:
                self._carry_to(seats, gathering)
        except Exception as failure:  # noqa: BLE001  # whatever it is, it costs one version by this way
            error = str(failure) or type(failure).__name__
            self._end_group()
        for seat in seats:
            for awaited in (seat.assignment, seat.outcome):
                if error is not None and not awaited.done():
                    awaited.set_exception(TransferFailed(error))
            if error is None:
                seat.outcome.set_result(None)
        staging = gathering.staging
        workers = tuple(seat.worker for seat in seats)
        took_s = time.monotonic() - began
        self._on_carried(Carried(workers, gathering.transport, staging.run_id, staging.version, took_s, error))

    def _carry_to(self, seats: list[Seat], gathering: _Gathering) -> None:
        snapshot = gathering.staging.snapshot
        nbytes, path = bytes_flat(snapshot.specs), snapshot.file.path
        joining, group = Deadline(self._join_s), self._group
        stands = group is not None and group.carrier.is_running and group.is_of(seats)
        group = group if stands and group is not None else self._gathered(seats, gathering.transport, joining)
        place = {"group": group.name, "host": self._host, "port": group.port, "world": len(seats) + 1}
        place |= {"transport": gathering.transport, "bucket": self._bucket_bytes}
        for rank, seat in enumerate(sorted(seats, key=lambda seat: seat.worker), 1):
            seat.assignment.set_result({**place, "rank": rank})
        if not stands:
            group.carrier.expect("joined", joining)
        group.carrier.order("carry", nbytes, self._bucket_bytes, path)
        sending = Deadline(self._join_s + nbytes / RATE_MIN)
        while group.carrier.hear(sending)[0] != "done":
            pass

    def _gathered(self, seats: list[Seat], transport: str, deadline: Deadline) -> _Group:
        """A new group; its carrier listens."""
        self._end_group()
        carrier = Carrier(self._spawn, transport)
        group = _Group(uuid4().hex, frozenset(seat.worker for seat in seats), carrier, 0)
        with self._lock:
            self._group = group
        carrier.expect("loaded", deadline)
        carrier.order("join", 0, len(seats) + 1, self._host, 0, self._host)
        group.port = int(carrier.expect("listening", deadline)[0])
        return group

    def _end_group(self) -> None:
        with self._lock:
            group, self._group = self._group, None
        if group is not None:
            group.carrier.end()


def _is_done(awaited: "Future[Any]") -> bool:
    try:
        awaited.exception(POLL_S)
    except TimeoutError:
        return False
    return True


def is_closed(connection: socket.socket) -> bool:
    """Returns whether the other end has closed: it says nothing more in a request that is answered line by line."""
    poll = select.poll()
    poll.register(connection, select.POLLIN | select.POLLRDHUP)
    return bool(poll.poll(0))
