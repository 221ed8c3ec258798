"""A thread that hands every record of a reader to a function, for ever.

Invariant: a position counts as reached only after `on_record` returned for every record before it. An exception, of
the log or of `on_record`, ends the follower: it never skips. A broker that is away for a while is no exception.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from claw_r1.eventlog.errors import LogError, NotCaughtUp, Retryable
from claw_r1.eventlog.patience import Patience
from claw_r1.eventlog.protocols import Reader
from claw_r1.eventlog.records import Place, Record

log = structlog.get_logger()

POLL_S = 0.1
JOIN_TIMEOUT_S = 10.0
LOOK_S = 10.0
"""How often somebody who waits for long is told how much is left."""


@dataclass(eq=False, slots=True)
class _Goal:
    """The position that a caller waits for the follower to reach. The follower's own thread asks where the end is: a
    client of confluent-kafka blocks for ever when two threads use it."""

    ends: dict[Place, int] | None = None

    def left(self, done: dict[Place, int]) -> int | None:
        """Offsets to go; None while the end is not known."""
        if self.ends is None:
            return None
        return sum(max(0, end - done.get(place, 0)) for place, end in self.ends.items())


class Follower:
    """Owns `reader` once started, and closes it at the end. `error` is what ended it, if anything did."""

    def __init__(
        self,
        reader: Reader,
        on_record: Callable[[Record], None],
        on_error: Callable[[BaseException], None] = lambda _: None,
    ) -> None:
        self.error: BaseException | None = None
        self._reader = reader
        self._on_record = on_record
        self._on_error = on_error
        self._done: dict[Place, int] = reader.positions()
        self._goals: list[_Goal] = []
        self._moved = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="claw-log-follower", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait_caught_up(self, timeout_s: float, on_look: Callable[[int | None], None] | None = None) -> None:
        """Returns when everything committed before this call was handed over.

        on_look: told now and then how much is left; then `timeout_s` bounds the time in which nothing is handed over, and
        not the whole, for a log that may be of any length. Raises NotCaughtUp after `timeout_s`, LogError when the follower
        has ended. Not for the follower's own thread.
        """
        goal = _Goal()
        with self._moved:
            self._goals.append(goal)
            reached = self._await(goal, timeout_s, on_look)
            self._goals.remove(goal)
        if self.error is not None:
            raise LogError(f"the follower ended: {self.error}") from self.error
        if not reached:
            raise NotCaughtUp(
                f"not at the end of the log within {timeout_s} s: {self._done}, ends {goal.ends}", goal.left(self._done)
            )

    def _await(self, goal: "_Goal", timeout_s: float, on_look: Callable[[int | None], None] | None) -> bool:
        def is_over() -> bool:
            return self.error is not None or goal.left(self._done) == 0

        if on_look is None:
            return self._moved.wait_for(is_over, timeout_s)
        patience, done = Patience(timeout_s), dict(self._done)
        while not self._moved.wait_for(is_over, min(LOOK_S, timeout_s / 4)):
            before, done = done, dict(self._done)
            if patience.is_over(moved=done != before):
                return False
            on_look(goal.left(done))
        return True

    def stop(self) -> bool:
        """Ends the thread after the record in hand; whether it has ended. Idempotent; may be called from `on_record` or `on_error`."""
        self._stopping.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(JOIN_TIMEOUT_S)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._answer_goals()
                self._step()
        except BaseException as error:  # noqa: BLE001  # whatever it is, the owner has to hear of it
            log.error("log_follower_ended", error=f"{type(error).__name__}: {error}")
            with self._moved:
                self.error = error
                self._moved.notify_all()
            self._on_error(error)
        finally:
            self._reader.close()

    def _answer_goals(self) -> None:
        with self._moved:
            asking = [goal for goal in self._goals if goal.ends is None]
        if not asking:
            return
        try:
            ends = self._reader.end_offsets()
        except Retryable as away:  # the question rides an outage out, as reading does; who waits has a deadline
            log.warning("log_end_unknown", reason=str(away))
            return
        with self._moved:
            for goal in asking:
                goal.ends = ends
            self._moved.notify_all()

    def _step(self) -> None:
        for record in self._reader.poll(POLL_S):
            if self._stopping.is_set():
                return
            self._on_record(record)
        with self._moved:
            self._done = self._reader.positions()
            self._moved.notify_all()
