"""The topics that the gateway follows, each set in a thread of its own.

Input: `rollout.workers`; `keys`; `datapool.groups` and `training.batches`. A replay only rebuilds the views.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import closing

import structlog

from claw_r1.eventlog.follower import Follower
from claw_r1.eventlog.protocols import Log, Reader
from claw_r1.eventlog.records import Record
from claw_r1.gateway.control.admission import AdmissionView
from claw_r1.gateway.http.auth import KeyRing
from claw_r1.gateway.upstream.engines import EngineTable
from claw_r1.schemas.topics import BATCHES, GROUPS, KEYS, WORKERS, Topic

TIMEOUT_S = 60.0
"""How long a follower may hand nothing over before the wait for it ends."""
log = structlog.get_logger()


class Followers:
    """The readers of the log that keep the gateway's views up to date, each in a thread of its own."""

    def __init__(
        self, kafka: Log, engines: EngineTable, keys: KeyRing, admission: AdmissionView, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._kafka = kafka
        self._timeout_s = timeout_s
        self._admission = admission
        self._views: list[tuple[Sequence[Topic], Callable[[Record], None]]] = [
            ([WORKERS], engines.apply),
            ([KEYS], keys.apply),
        ]
        self._running: list[Follower] = []
        self._caught_up = threading.Event()

    def start(self, on_error: Callable[[BaseException], None]) -> None:
        """Start to read, and wait until the views are up to date. Raises BrokerUnreachable, TopicMissing."""
        for topics, apply in self._views:
            self._follow(self._kafka.reader(topics), apply, on_error)
        with closing(self._kafka.reader([BATCHES])) as plans:
            for record in plans.read_to_end():
                self._admission.apply(record)
            read = plans.positions()
        self._follow(self._kafka.reader([GROUPS, BATCHES], start=read), self._admission.apply, on_error)
        self.catch_up()
        self._caught_up.set()

    def _follow(
        self, reader: Reader, apply: Callable[[Record], None], on_error: Callable[[BaseException], None]
    ) -> None:
        follower = Follower(reader, apply, on_error)
        self._running.append(follower)
        follower.start()

    def catch_up(self) -> None:
        """Return when everything that is committed now was handed over, however much that is: the pool keeps its groups.
        Raises LogError, also when nothing comes for long."""
        for follower in self._running:
            follower.wait_caught_up(self._timeout_s, lambda left: log.info("gateway_reading_log", records_left=left))

    def not_ready(self) -> str | None:
        """The reason why views are not up to date, in a word, or None."""
        if any(follower.error for follower in self._running):
            return "follower_ended"
        return None if self._caught_up.is_set() else "catching_up"

    @property
    def broken(self) -> bool:
        """A thread ended by an error."""
        return any(follower.error for follower in self._running)

    def stop(self) -> None:
        for follower in self._running:
            follower.stop()
