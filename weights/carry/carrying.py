"""The trainer's side of carriers: who asks for one version within a short while gets it by one collective.

Invariant: nothing here keeps the trainer's loop waiting, and a member that dies, stands still or talks nonsense costs
its group this one version: the others are told by the end of their requests, and ask for it by HTTP. A group stands
from version to version, and is replaced, never changed: when one of its workers asks with others, or without it, its
carrier is ended.
"""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from claw_r1.weights.carry.carrier_handle import Carrier, Spawn, bucket_s, readable
from claw_r1.weights.deadline import Deadline
from claw_r1.weights.errors import TransferFailed
from claw_r1.weights.manifest import bytes_flat
from claw_r1.weights.staging import Staging

GATHER_S = 0.3
"""Less where everybody has asked who did for the version before."""
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
    """The place of one worker in a gathering. group: the group that its carrier is in, or none. address:
    ours, by which it came."""

    worker: str
    group: str
    address: str
    assignment: "Future[dict[str, Any]]" = field(default_factory=Future)
    """The group that it has to join, or to stay in, once everybody is there."""
    outcome: "Future[None]" = field(default_factory=Future)
    has_all: bool = False
    """The worker has every byte, and may leave."""
    is_left: bool = False
    """The worker left before."""


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
    host: str
    port: int = 0

    def is_of(self, seats: Sequence[Seat], transport: str) -> bool:
        """Returns whether those who ask are those who are in this group already."""
        is_same = self.workers == {seat.worker for seat in seats} and self.carrier.transport == transport
        return is_same and self.carrier.is_running and all(seat.group == self.name for seat in seats)


class Carrying:
    """Carries versions from construction until `close`. `on_carried` is called from its thread."""

    def __init__(
        self,
        transports: Sequence[str],
        spawn: Spawn,
        *,
        join_s: float = 60.0,
        bucket_bytes: int = 8 << 20,
        gather_s: float = GATHER_S,
        on_carried: Callable[[Carried], None] = lambda _: None,
    ) -> None:
        """join_s: until a group stands, and until its first bucket is sent. bucket_bytes: so few that a bucket is still
        in the cache when it is written. gather_s: how long others may come to the first who asks."""
        self.transports = tuple(transports)
        self._spawn, self._join_s, self._on_carried = spawn, join_s, on_carried
        self._bucket_bytes, self._gather_s = bucket_bytes, gather_s
        self._version: tuple[str, int] | None = None
        self._asking: set[str] = set()
        """The workers that asked for this version."""
        self._expected: set[str] = set()
        """The workers that asked for the one before."""
        self._gatherings: dict[tuple[str, str], _Gathering] = {}
        self._groups: list[_Group] = []
        self._is_closed = False
        self._changed = threading.Condition()
        """Holds all of the above; notified when somebody has sat down."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="weights-carrying")

    def sit_down(self, staging: Staging, seat: Seat, transports: Sequence[str]) -> None:
        """Takes a seat in the gathering of who wants this version now. Raises TransferFailed where no transport is common, or the
        version lies in no file."""
        transport = next((name for name in self.transports if name in transports), None)
        if transport is None or staging.snapshot.file.path is None:
            raise TransferFailed(f"carried by {' or '.join(self.transports) or 'nothing'} only")
        place, version = (transport, staging.snapshot.manifest.digest), (staging.run_id, staging.version)
        with self._changed:
            if self._is_closed:
                raise TransferFailed("the trainer ends")
            if version != self._version:
                self._version, self._expected, self._asking = version, self._asking, set()
            self._asking.add(seat.worker)
            gathering = self._gatherings.get(place)
            if gathering is None:
                gathering = self._gatherings[place] = _Gathering(staging, transport)
                self._thread.submit(self._carry, place, gathering)
            gathering.seats.append(seat)
            self._changed.notify_all()

    def lines(self, seat: Seat, is_gone: Callable[[], bool]) -> Iterator[bytes]:
        """Yields to a worker its place in the group, and `done` when every byte was sent. Ends early where the group did.
        is_gone: whether the worker left."""
        for awaited in (seat.assignment, seat.outcome):
            while not _is_done(awaited):
                if is_gone():
                    return
            if awaited.exception() is not None:
                return
            yield (json.dumps(awaited.result() or "done") + "\n").encode()

    def leave(self, seat: Seat) -> None:
        """The worker is gone, or has all that it wanted: without effect where its group need not wait for it. Idempotent."""
        with self._changed:
            if seat.has_all or seat.outcome.done():
                return
            seat.is_left = True
            for gathering in self._gatherings.values():  # not begun: the others have their version without it
                if seat in gathering.seats:
                    gathering.seats.remove(seat)
                    return
            groups = [group for group in self._groups if seat.worker in group.workers]
        for group in groups:
            group.carrier.end()

    def close(self) -> None:
        """Ends all groups; who is under way is told by the end of its request."""
        with self._changed:
            self._is_closed, groups = True, list(self._groups)
        self._thread.shutdown(wait=False)
        for group in groups:
            group.carrier.end()

    def _carry(self, place: tuple[str, str], gathering: _Gathering) -> None:
        began = time.monotonic()
        with self._changed:
            self._changed.wait_for(lambda: self._expected and self._expected <= self._asking, self._gather_s)
            del self._gatherings[place]
            seats = list(gathering.seats)
        if not seats:
            return
        error: str | None = None
        try:
            self._carry_to(seats, gathering)
        except Exception as failure:  # noqa: BLE001  # whatever it is, it costs one version by this way
            error = str(failure) or type(failure).__name__
            self._end_groups(seats)
        for seat in seats:
            for awaited in (seat.assignment, seat.outcome):
                if error is not None and not awaited.done():
                    awaited.set_exception(TransferFailed(error))
            if error is None:
                seat.outcome.set_result(None)
        staging, workers = gathering.staging, tuple(sorted(seat.worker for seat in seats))
        took_s = time.monotonic() - began
        self._on_carried(Carried(workers, gathering.transport, staging.run_id, staging.version, took_s, error))

    def _carry_to(self, seats: list[Seat], gathering: _Gathering) -> None:
        snapshot, transport, joining = gathering.staging.snapshot, gathering.transport, Deadline(self._join_s)
        standing = next((group for group in self._groups if group.is_of(seats, transport)), None)
        group = standing or self._gathered(seats, transport, joining)
        if any(seat.is_left for seat in seats):
            raise TransferFailed("a member left before its group stood")
        place = {"group": group.name, "host": group.host, "port": group.port, "world": len(seats) + 1}
        place |= {"transport": transport, "bucket": self._bucket_bytes}
        for rank, seat in enumerate(sorted(seats, key=lambda seat: seat.worker), 1):
            seat.assignment.set_result({**place, "rank": rank})
        if standing is None:
            group.carrier.expect("joined", joining)
        group.carrier.order("carry", bytes_flat(snapshot.specs), self._bucket_bytes, snapshot.file.path)
        limit = Deadline(self._join_s)
        while group.carrier.hear(limit)[0] != "done":
            limit = Deadline(bucket_s(self._bucket_bytes))

    def _gathered(self, seats: list[Seat], transport: str, deadline: Deadline) -> _Group:
        """A new group; its carrier listens where the first of its workers came."""
        self._end_groups(seats)
        workers, host = frozenset(seat.worker for seat in seats), seats[0].address
        with self._changed:
            if self._is_closed:
                raise TransferFailed("the trainer ends")
            group = _Group(uuid4().hex, workers, Carrier(self._spawn, transport), host)
            self._groups.append(group)
        group.carrier.expect("loaded", deadline)
        group.carrier.order("join", 0, len(seats) + 1, host, 0, host)
        group.port = int(group.carrier.expect("listening", deadline)[0])
        return group

    def _end_groups(self, seats: Sequence[Seat]) -> None:
        """The groups of these workers."""
        workers = {seat.worker for seat in seats}
        with self._changed:
            ended = [group for group in self._groups if group.workers & workers]
            self._groups = [group for group in self._groups if group not in ended]
        for group in ended:
            group.carrier.end()


def _is_done(awaited: "Future[Any]") -> bool:
    try:
        awaited.exception(POLL_S)
    except TimeoutError:
        return False
    return True


def is_gone(connection: socket.socket, seat: Seat) -> bool:
    """Returns whether the other end has closed. A byte from it says that it has all."""
    if not readable(connection):
        return False
    try:
        seat.has_all = bool(connection.recv(1)) or seat.has_all
    except OSError:
        return True
    return not seat.has_all
